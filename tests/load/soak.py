#!/usr/bin/env python3
"""Mixed load with faults on a slow disk: nothing panics, nothing unexpected fails, no write is lost, memory stays level.

    python3 tests/load/soak.py [PATH OF THE BINARY]     default: $ANTIPHON_BIN, else target/debug/antiphon
    SOAK_SECONDS=1200 python3 tests/load/soak.py ...    twenty minutes; the default is one

A fixed number of conversations go on and on: healthy turns, calls without results, streams, large bodies, compressed
bodies, clients that leave, and a provider that refuses, fails, breaks off and falls silent. Every sync of the ledger's
file is delayed by 100 ms with strace; without strace the disk is as fast as it is, and the script says so.

Prints the figures, and exits with 1 if a promise is broken. The seed is printed and comes from $SEED.
"""

import gzip
import http.client
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "sdk"))

from running import fetch, free_port  # noqa: E402

SECONDS = int(os.environ.get("SOAK_SECONDS", "60"))
SEED = int(os.environ.get("SEED", "1"))
CLIENTS = 8
CONVERSATIONS = 40
SYNC_DELAY_MICROSECONDS = 100_000
GROWTH_MAX = 1.2
MIB = 1024 * 1024

ANSWER = {"id": "m", "type": "message", "role": "assistant", "model": "m",
          "content": [{"type": "text", "text": "done"}], "stop_reason": "end_turn", "usage": {"output_tokens": 1}}
# What a client may get for each model: the provider behaves as its name says. 503 is a budget that has no share left.
EXPECTED = {
    "fine": {200, 503},
    "limited": {429, 503},
    "failing": {500, 503},
    "refusing": {400, 503},
    "resetting": {502, 503},
}


class Provider(BaseHTTPRequestHandler):
    """A provider whose behaviour is in the name of the model."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        """Answers one request."""
        body = self.rfile.read(int(self.headers["content-length"]))
        # Bodies without a repair come as the client compressed them.
        asked = json.loads(gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body)
        model = asked["model"]
        if model == "resetting":
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        elif model == "limited":
            self.answer(429, {"type": "error", "error": {"type": "rate_limit_error", "message": "too many requests"}})
        elif model == "failing":
            self.answer(500, {"type": "error", "error": {"type": "api_error", "message": "internal error"}})
        elif model == "refusing":
            self.answer(400, {"type": "error", "error": {"type": "invalid_request_error", "message": "bad"}})
        elif asked.get("stream"):
            self.stream(is_whole=random.random() < 0.8)
        else:
            self.answer(200, ANSWER)

    def answer(self, status, body):
        """Sends a whole answer."""
        body = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, is_whole):
        """Sends a stream with a tool call, or breaks off in its middle."""
        call = {"type": "tool_use", "id": f"toolu_{random.getrandbits(64):x}", "name": "run", "input": {}}
        events = [
            {"type": "message_start", "message": {**ANSWER, "content": [], "stop_reason": None}},
            {"type": "content_block_start", "index": 0, "content_block": call},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for event in events if is_whole else events[:2]:
            data = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        if is_whole:
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.close_connection = True

    def log_message(self, *_):
        """Says nothing."""


class Server(ThreadingHTTPServer):
    """The provider's listener."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):
        """Connections that the proxy closes are no errors."""


def history(number, turns, rng):
    """The history of a conversation: turns with calls, of which some have no result."""
    messages = [{"role": "user", "content": f"conversation {number}"}]
    for turn in range(turns):
        call = f"toolu_{number}_{turn}"
        messages.append({"role": "assistant", "content": [{"type": "tool_use", "id": call, "name": "run", "input": {}}]})
        result = {"type": "tool_result", "tool_use_id": call, "content": "x" * rng.choice([10, 500, 4000])}
        lost = turn % 5 == 4
        messages.append({"role": "user", "content": "go on" if lost else [result]})
    return messages


class Load:
    """The clients and what they saw."""

    def __init__(self, base):
        self.base, self.kinds, self.unexpected = base, Counter(), []
        self.is_over = threading.Event()
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.go, args=(random.Random(f"{SEED}-{n}"),)) for n in range(CLIENTS)]

    def go(self, rng):
        """Asks until it is over."""
        while not self.is_over.is_set():
            kind, fault = self.ask(rng)
            with self.lock:
                self.kinds[kind] += 1
                if fault:
                    self.unexpected.append(f"{kind}: {fault}")
            time.sleep(rng.random() * 0.05)

    def ask(self, rng):
        """Sends one request. Returns its kind, and what is wrong with the answer."""
        number = rng.randrange(CONVERSATIONS)
        model = rng.choices(list(EXPECTED), weights=[80, 3, 3, 3, 3])[0]
        body = {"model": model, "max_tokens": 9, "messages": history(number, rng.choice([2, 5, 20, 60]), rng)}
        kind = model
        if model == "fine" and rng.random() < 0.3:
            body["stream"], kind = True, "stream"
        if rng.random() < 0.02:
            body["messages"][0]["content"] = "x" * (2 * MIB)
            kind = f"large {kind}"
        data = json.dumps(body).encode()
        headers = {"content-type": "application/json", "x-api-key": f"key-{number % 4}"}
        if rng.random() < 0.1:
            data = gzip.compress(data)
            headers["content-encoding"] = "gzip"
        if rng.random() < 0.03:
            return "left", self.leave(data, headers)
        request = urllib.request.Request(f"{self.base}/anthropic/v1/messages", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                answer.read()
                status, reason = answer.status, ""
        except urllib.error.HTTPError as error:
            status, reason = error.code, f"{error.headers.get('proxy-status')} {error.read()[:200]!r}"
        except (OSError, ValueError, http.client.HTTPException) as error:
            # A stream that the provider breaks off breaks off here too.
            return kind, "" if "stream" in kind else f"{type(error).__name__}: {error}"
        return kind, "" if status in EXPECTED[model] else f"status {status} {reason}"

    def leave(self, data, headers):
        """Sends a request and leaves without its answer."""
        host, port = self.base.removeprefix("http://").split(":")
        fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"POST /anthropic/v1/messages HTTP/1.1\r\nhost: localhost\r\n{fields}content-length: {len(data)}\r\n\r\n"
        try:
            with socket.create_connection((host, int(port)), timeout=10) as connection:
                connection.sendall(head.encode() + data)
        except OSError as error:
            return str(error)
        return ""


def resident(process):
    """The resident memory of a process in MiB."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024


def metric(page, name):
    """The sum of the series of a metric."""
    values = re.findall(rf"^{name}(?:{{[^}}]*}})? ([0-9.e+]+)$", page, re.MULTILINE)
    return sum(float(value) for value in values)


def start(binary, folder, upstream):
    """Starts the proxy, on a slow disk if strace is there: (process, its id, data address, admin address)."""
    data, admin = free_port(), free_port()
    config = folder / "antiphon.toml"
    config.write_text(f'[ledger]\npath = "{folder / "ledger.db"}"\n[upstreams.anthropic]\nurl = "{upstream}"\n')
    command = [str(binary), "serve", "-c", str(config), "--log-format", "json",
               "--listen", f"127.0.0.1:{data}", "--admin-listen", f"127.0.0.1:{admin}"]
    strace = shutil.which("strace")
    if strace:
        fault = f"inject=fsync,fdatasync:delay_exit={SYNC_DELAY_MICROSECONDS}"
        traced = [strace, "-f", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-e", fault]
        command = traced + command
    else:
        print("skipped: the slow disk: strace is not installed")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=open(folder / "log", "wb"))
    for _ in range(300):
        try:
            fetch(f"http://127.0.0.1:{admin}/readyz")
            break
        except OSError:
            time.sleep(0.1)
    else:
        raise RuntimeError((folder / "log").read_text()[-2000:])
    pid = process.pid
    if strace:
        pid = int(subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=True).stdout.split()[0])
    return process, pid, f"http://127.0.0.1:{data}", f"http://127.0.0.1:{admin}"


def main():
    """Runs the load, and judges it."""
    binary = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ANTIPHON_BIN", "target/debug/antiphon")).resolve()
    print(f"soak: {SECONDS} s, seed {SEED}, {CLIENTS} clients, {CONVERSATIONS} conversations")
    provider = Server(("127.0.0.1", 0), Provider)
    threading.Thread(target=provider.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        process, pid, base, admin = start(binary, folder, f"http://127.0.0.1:{provider.server_port}")
        load = Load(base)
        for thread in load.threads:
            thread.start()
        time.sleep(SECONDS / 3)
        warm = resident(pid)
        time.sleep(SECONDS * 2 / 3)
        level = resident(pid)
        load.is_over.set()
        for thread in load.threads:
            thread.join()
        page = fetch(f"{admin}/metrics")
        process.terminate() if pid == process.pid else os.kill(pid, 15)
        code = process.wait(60)
        log = (folder / "log").read_text()
    lost, missed = metric(page, "antiphon_ledger_lost_total"), metric(page, "antiphon_ledger_missed_total")
    panics = log.count("panicked at")
    print(f"requests: {sum(load.kinds.values())}, {dict(sorted(load.kinds.items()))}")
    print(f"unexpected answers: {len(load.unexpected)}; panics: {panics}; lost writes: {lost:.0f}; missed: {missed:.0f}")
    print(f"resident memory: {warm:.0f} MiB after a third, {level:.0f} MiB at the end; exit code {code}")
    faults = load.unexpected[:5]
    faults += [f"{panics} panics"] if panics else []
    faults += [f"{lost:.0f} lost writes"] if lost else []
    faults += [f"memory grew from {warm:.0f} to {level:.0f} MiB"] if level > warm * GROWTH_MAX + 8 else []
    faults += [f"exit code {code}"] if code else []
    for fault in faults:
        print(f"FAILED: {fault}")
    print("passed" if not faults else f"{len(faults)} failed")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
