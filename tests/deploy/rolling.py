"""A rolling restart of two instances, each with a ledger of its own, behind HAProxy and behind nginx.

    python3 tests/deploy/rolling.py [PATH OF THE BINARY]    default: $ANTIPHON_BIN, else target/debug/antiphon

Short requests and streams go through the balancer the whole time. Each instance gets a SIGTERM, ends by itself, and is
started again on the same ports and ledger. No request may fail. A balancer that is not installed is skipped aloud.
"""

import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "sdk"))

from running import fetch, free_port  # noqa: E402

# The balancer asks for the health every half second, and needs two failures or successes.
DRAIN_DELAY = 3
STREAM_EVENTS = 20
EVENT_PAUSE = 0.1
CLIENTS = 4
CALM = 1.5

HAPROXY = """
global
  maxconn 1000
defaults
  mode http
  timeout connect 2s
  timeout client 60s
  timeout server 60s
frontend all
  bind 127.0.0.1:{port}
  default_backend antiphon
backend antiphon
  option httpchk
  # The admin listener answers to the names of this machine only.
  http-check send meth GET uri /readyz ver HTTP/1.1 hdr Host localhost
  http-check expect status 200
  # A connection that the proxy closes while it drains is no failed request.
  retries 3
  retry-on conn-failure empty-response
  default-server check inter 500ms fall 2 rise 2
  server a 127.0.0.1:{a[data]} check port {a[admin]}
  server b 127.0.0.1:{b[data]} check port {b[admin]}
"""

# nginx without its commercial part checks no health: it turns to the other server when a connection is refused.
NGINX = """
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
worker_processes 1;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  upstream antiphon {{
    server 127.0.0.1:{a[data]} max_fails=1 fail_timeout=1s;
    server 127.0.0.1:{b[data]} max_fails=1 fail_timeout=1s;
  }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://antiphon;
      proxy_http_version 1.1;
      proxy_buffering off;
      proxy_set_header Host localhost;
      proxy_next_upstream error;
    }}
  }}
}}
"""


def tool(name):
    """The path of a program; None, with a word, where it is not installed."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/bin")
    if not found:
        print(f"skipped: {name} is not installed")
    return found


class Provider(BaseHTTPRequestHandler):
    """Answers with a message, or with a stream of two seconds."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        """Answers one request."""
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if not asked.get("stream"):
            body = b'{"type":"message","role":"assistant","content":[],"stop_reason":"end_turn"}'
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.event("message_start", {"message": {"id": "m", "type": "message", "role": "assistant", "content": []}})
        for _ in range(STREAM_EVENTS):
            time.sleep(EVENT_PAUSE)
            self.event("ping", {})
        self.event("message_delta", {"delta": {"stop_reason": "end_turn"}})
        self.event("message_stop", {})
        self.close_connection = True

    def event(self, name, data):
        """Writes one event."""
        self.wfile.write(f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n".encode())

    def log_message(self, *_):
        """Says nothing."""


class Instance:
    """One proxy with its own ledger. It can be restarted."""

    def __init__(self, binary, folder, upstream):
        self.ports = {"data": free_port(), "admin": free_port()}
        folder.mkdir()
        (folder / "antiphon.toml").write_text(
            f'[server]\ndrain_delay = "{DRAIN_DELAY}s"\ndrain_timeout = "20s"\n'
            f'[ledger]\npath = "{folder / "ledger.db"}"\n'
            f'[upstreams.anthropic]\nurl = "{upstream}"\n'
        )
        self.command = [
            str(binary), "serve", "-c", str(folder / "antiphon.toml"),
            "--listen", f"127.0.0.1:{self.ports['data']}", "--admin-listen", f"127.0.0.1:{self.ports['admin']}",
        ]
        self.log = open(folder / "log", "ab")
        self.start()

    def start(self):
        """Starts it, and waits until it is ready."""
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log)
        for _ in range(200):
            try:
                fetch(f"http://127.0.0.1:{self.ports['admin']}/readyz")
                return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError("an instance did not get ready")

    def restart(self):
        """Ends it as a service manager does, and starts it again. Returns its exit code."""
        self.process.terminate()
        code = self.process.wait(30)
        self.start()
        return code

    def stop(self):
        """Ends it at once."""
        self.process.kill()
        self.process.wait()
        self.log.close()


class Traffic:
    """Clients that ask the whole time: each a short request and, on every second client, a stream."""

    def __init__(self, url):
        self.url, self.failures, self.requests, self.streams = url, [], 0, 0
        self.is_over = threading.Event()
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.ask_on, args=(number,)) for number in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def ask_on(self, number):
        """Asks until it is over, in one session."""
        is_stream = number % 2 == 1
        while not self.is_over.is_set():
            fault = self.ask(is_stream, f"session {number}")
            with self.lock:
                self.requests += 1
                self.streams += is_stream
                if fault:
                    self.failures.append(fault)
            time.sleep(0.02)

    def ask(self, is_stream, session):
        """Sends one request. Returns what is wrong with its answer."""
        body = json.dumps({"model": "m", "stream": is_stream, "messages": [{"role": "user", "content": "go"}]})
        headers = {"content-type": "application/json", "x-api-key": "k", "x-antiphon-session": session}
        request = urllib.request.Request(f"{self.url}/anthropic/v1/messages", body.encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read().decode()
        except (OSError, ValueError, http.client.HTTPException) as error:
            return f"{type(error).__name__}: {error}"
        if is_stream and "message_stop" not in text:
            return f"a stream without its end: {text[-200:]!r}"
        return ""

    def end(self):
        """Ends the clients."""
        self.is_over.set()
        for thread in self.threads:
            thread.join()


def check_rolling(name, command, config, binary, upstream):
    """Restarts both instances one after the other behind a balancer."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        a, b = (Instance(binary, folder / label, upstream) for label in "ab")
        port = free_port()
        file = folder / f"{name}.conf"
        file.write_text(config.format(a=a.ports, b=b.ports, port=port, folder=folder))
        balancer = subprocess.Popen([*command, str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(CALM)
            traffic = Traffic(f"http://127.0.0.1:{port}")
            codes = []
            for instance in (a, b):
                time.sleep(CALM)
                codes.append(instance.restart())
            time.sleep(CALM)
            traffic.end()
        finally:
            balancer.kill()
            balancer.wait()
            a.stop()
            b.stop()
    label = f"a rolling restart behind {name}: {traffic.requests} requests, {traffic.streams} of them streams"
    faults = [f"exit codes {codes}"] if codes != [0, 0] else []
    yield label, "; ".join(faults + [f"{len(traffic.failures)} failed: {traffic.failures[0]}"] if traffic.failures else faults)


def check_balancers(binary):
    """A rolling restart behind each balancer that is installed."""
    provider = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=provider.serve_forever, daemon=True).start()
    upstream = f"http://127.0.0.1:{provider.server_port}"
    if haproxy := tool("haproxy"):
        yield from check_rolling("HAProxy", [haproxy, "-db", "-f"], HAPROXY, binary, upstream)
    if nginx := tool("nginx"):
        yield from check_rolling("nginx", [nginx, "-c"], NGINX, binary, upstream)
    provider.shutdown()


def main():
    """Runs the checks."""
    binary = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ANTIPHON_BIN", "target/debug/antiphon")
    failed = 0
    for name, wrong in check_balancers(Path(binary).resolve()):
        print(f"{'FAILED' if wrong else 'passed'}: {name}{f': {wrong}' if wrong else ''}")
        failed += bool(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
