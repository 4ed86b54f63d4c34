#!/usr/bin/env python3
"""Claude Code from npm through a running Antiphon, before a server that refuses it: what does it do with each error?

    python3 tests/sdk/claude_code.py [PATH OF THE BINARY]      default: $ANTIPHON_BIN, else target/debug/antiphon

Installs Claude Code below target/sdk-claude-code (400 MB), in the version of claude-code.json. Nothing leaves this
machine: key and home are invented, and the author's host is reached through a proxy that is the server itself. The last
line is `N passed, N failed`; it exits with 1 if any failed, and with 0 and a line `skipped: …` without npm.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from install import HERE, TARGET, complaint, stamp
from running import antiphon

SECONDS = 120
WORDS = "Hello from the server."
LIMIT, PROMPT = 131072, 122942
BETA = "context-management-2025-06-27"


def installed():
    """The program for this machine; None, with a word why, where it cannot be had."""
    npm = shutil.which("npm")
    if not npm:
        print("skipped: Claude Code: npm is not installed")
        return None
    home = TARGET / "sdk-claude-code"
    home.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "claude-code.json", home / "package.json")
    mark = stamp(home, home / "package.json")
    if not mark.exists():
        install = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        done = subprocess.run(install, cwd=home, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(f"skipped: Claude Code: npm cannot install it: {complaint(done)[0]}")
            return None
        mark.touch()
    # The package's own script would have linked it.
    found = sorted(home.glob("node_modules/@anthropic-ai/claude-code-*/claude*"))
    if not found:
        print("skipped: Claude Code has no program for this machine")
        return None
    return found[0]


# What a server refuses, and in which words. Each takes headers and body of a request; None accepts it.


def vllm(_, body):
    """Refuses a prompt for which the answer leaves no room."""
    output = body["max_tokens"]
    if PROMPT + output <= LIMIT:
        return None
    return (
        f"This model's maximum context length is {LIMIT} tokens. However, you requested {PROMPT + output} tokens "
        f"({PROMPT} in the messages, {output} in the completion). Please reduce the length of the messages or "
        "completion."
    )


def lm_studio(*_):
    """Refuses every prompt, in words that Claude Code does not know."""
    return (
        "The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 26166>= "
        "n_ctx: 8192). Try to load the model with a larger context length, or provide a shorter input."
    )


def extra_field(_, body):
    return "context_management: Extra inputs are not permitted" if "context_management" in body else None


def capability(headers, _):
    rejected = BETA in headers.get("anthropic-beta", "")
    return f"Invalid request parameters (capability_rejected: beta_header:{BETA})" if rejected else None


# The server.


@dataclass
class Server:
    """Refuses turns as `refuses` says, and answers all others. Records what arrived."""

    refuses: object
    turns: list = field(default_factory=list)
    url: str = ""


@contextmanager
def serving(refuses):
    state = Server(refuses)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def send(self, status, kind, data):
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_CONNECT(self):
            # The proxy on the way to the author's host is the author.
            self.send_response(200, "Connection established")
            self.end_headers()

        def do_HEAD(self):
            self.send(200, "text/plain", b"")

        def do_GET(self):
            self.send(404, "application/json", b'{"type":"error","error":{"type":"not_found_error","message":"none"}}')

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            headers = {name.lower(): value for name, value in self.headers.items()}
            if "count_tokens" in self.path:
                self.send(200, "application/json", b'{"input_tokens":10}')
                return
            state.turns.append((self.path, headers, body))
            text = state.refuses(headers, body)
            if text:
                error = {"type": "error", "error": {"type": "invalid_request_error", "message": text}}
                self.send(400, "application/json", json.dumps(error).encode())
            else:
                self.send(200, "text/event-stream", stream(body["model"]))

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()


def stream(model):
    """A short answer, as Anthropic streams it."""
    usage = {"input_tokens": 5, "output_tokens": 5}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [], "usage": usage}
    message |= {"stop_reason": None, "stop_sequence": None}
    block = {"index": 0, "content_block": {"type": "text", "text": ""}}
    events = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start"} | block,
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": WORDS}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()


# The checks.


@dataclass
class Turn:
    """One prompt: the exit code, what was printed, and the requests that reached the server."""

    code: int
    printed: str
    requests: list

    def limits(self):
        return [body["max_tokens"] for _, _, body in self.requests]


def ask(program, binary, refuses, config="", of_author=False):
    """Asks Claude Code for one answer, through Antiphon before a server, which may be the format's author."""
    with serving(refuses) as server, tempfile.TemporaryDirectory() as home:
        if of_author:
            os.environ["HTTP_PROXY"] = os.environ["http_proxy"] = server.url
            server_url, server.url = server.url, "http://api.anthropic.com"
        try:
            with antiphon(binary, ["anthropic"], server, config) as (data, _):
                env = {name: os.environ[name] for name in ("PATH", "LANG", "SYSTEMROOT") if name in os.environ}
                env |= {"HOME": home, "ANTHROPIC_BASE_URL": f"{data}/anthropic", "ANTHROPIC_API_KEY": "sk-test"}
                env |= {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
                done = subprocess.run(
                    [str(program), "-p", "Say hello."],
                    cwd=home,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    timeout=SECONDS,
                    check=False,
                )
        finally:
            for name in ("HTTP_PROXY", "http_proxy"):
                os.environ.pop(name, None)
        return Turn(done.returncode, (done.stdout + done.stderr).strip(), server.turns)


def checks(program, binary):
    """Each check with its name and what is wrong, or an empty string."""

    def verdict(name, turn, *wanted):
        wrong = [text for holds, text in wanted if not holds]
        return name, "; ".join(wrong) and f"{'; '.join(wrong)}: {turn.code} {turn.limits()} {turn.printed[-300:]!r}"

    off = "[repair]\nexplain = false\n"
    turn = ask(program, binary, vllm)
    yield verdict(
        "vLLM's overflow is explained: max_tokens is lowered",
        turn,
        (turn.code == 0 and WORDS in turn.printed, "no answer"),
        (len(turn.requests) == 2 and turn.limits()[1] <= LIMIT - PROMPT, "max_tokens stays"),
    )
    turn = ask(program, binary, vllm, off)
    yield verdict(
        "without explain the turn ends at vLLM's overflow",
        turn,
        (turn.code == 1 and len(turn.requests) == 1, "it went on"),
    )
    turn = ask(program, binary, vllm, of_author=True)
    yield verdict(
        "the author's error is relayed as it is",
        turn,
        (turn.code == 1 and len(turn.requests) == 1 and "(input length" not in turn.printed, "it was explained"),
    )
    turn = ask(program, binary, lm_studio)
    yield verdict(
        "LM Studio's overflow is explained: it is known as one, and asked once",
        turn,
        (turn.code == 1 and len(turn.requests) == 1, "it was asked again"),
        ("too long" in turn.printed.lower(), "it is not known"),
    )
    turn = ask(program, binary, lm_studio, off)
    yield verdict(
        "without explain LM Studio's overflow is asked again and again",
        turn,
        (turn.code == 1 and len(turn.requests) > 1, "it was known"),
    )
    turn = ask(program, binary, capability, of_author=True)
    yield verdict(
        "the author's capability_rejected arrives: Claude Code leaves the beta out itself",
        turn,
        (turn.code == 0 and len(turn.requests) == 2, "no answer"),
    )
    turn = ask(program, binary, extra_field)
    _, headers, body = turn.requests[-1]
    yield verdict(
        "a field that the server does not know is left out by Antiphon",
        turn,
        (turn.code == 0 and len(turn.requests) == 2, "no answer"),
        ("context_management" not in body, "the field stays"),
        # Claude Code would have left out the beta, too.
        (BETA in headers.get("anthropic-beta", ""), "Claude Code has seen the error"),
    )


def main():
    program = installed()
    if not program:
        return 0
    arguments = sys.argv[1:]
    binary = Path(arguments[0] if arguments else os.environ.get("ANTIPHON_BIN") or TARGET / "debug" / "antiphon")
    if not binary.exists():
        print(f"no binary at {binary}: cargo build, or name another")
        return 1
    passed = failed = 0
    for name, wrong in checks(program, binary.resolve()):
        print(f"{'FAILED' if wrong else 'ok'}: {name}{f': {wrong}' if wrong else ''}", flush=True)
        passed, failed = passed + (not wrong), failed + bool(wrong)
    print(f"{passed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
