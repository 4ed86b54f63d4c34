#!/usr/bin/env python3
"""The snippets of docs/late-results.md against a running Antiphon.

    python3 tests/sdk/docs.py [PATH OF THE BINARY]     default: $ANTIPHON_BIN, else target/debug/antiphon

Runs every code block that a comment `<!-- run: sh|python|node -->` marks, each with a call of its own. The last line is
`N passed, N failed`; it exits with 1 if any failed. Blocks whose program is not installed are skipped aloud.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from running import antiphon

ROOT = Path(__file__).resolve().parent.parent.parent
BLOCK = re.compile(r"<!-- run: (\w+) -->\n```\w+\n(.*?)```", re.S)
COMMANDS = {"sh": ["sh", "-e"], "python": [sys.executable, "-"], "node": ["node", "--input-type=module"]}
KEY = "sk-docs"


def main():
    binary = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ANTIPHON_BIN", ROOT / "target/debug/antiphon"))
    blocks = BLOCK.findall((ROOT / "docs" / "late-results.md").read_text())
    assert blocks, "docs/late-results.md has no block to run"
    made = subprocess.run([binary, "config", "token", "runner"], text=True, capture_output=True, check=True)
    token, digest = made.stdout.strip(), re.search(r'"(sha256:[^"]+)"', made.stderr).group(1)
    service = f'[services.runner]\ntoken = "{digest}"\nprincipals = ["*"]\ntools = ["*"]\n'
    failed = passed = 0
    with provider() as upstream, antiphon(binary, ["anthropic"], upstream, service) as (base, admin):
        owner = ask(base, "call_Hello0000000000000000ab")
        for number, (language, code) in enumerate(blocks):
            command = COMMANDS[language]
            if not shutil.which(command[0]):
                print(f"skipped: a block of {language}: {command[0]} is not installed")
                continue
            call = f"call_Docs{number:02}kJ8sQ2mZx4LwP9vB7t"
            ask(base, call)
            given = {"ANTIPHON": base, "ADMIN": admin, "API_KEY": KEY}
            given |= {"CALL_ID": call, "OWNER": owner, "RUNNER_TOKEN": token}
            done = subprocess.run(
                command, input=code, text=True, capture_output=True, env=os.environ | given, timeout=60, check=False
            )
            is_good = done.returncode == 0 and '"error"' not in done.stdout
            is_good = is_good and any(word in done.stdout for word in ("settled", owner, '"reason"'))
            passed, failed = passed + is_good, failed + (not is_good)
            if not is_good:
                print(f"FAILED: block {number} ({language})\n{done.stdout}{done.stderr}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


class Provider(BaseHTTPRequestHandler):
    """Answers every request with a call whose id is the text of its last message."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        call = {"type": "tool_use", "id": body["messages"][-1]["content"], "name": "render", "input": {}}
        answer = {"id": "msg_1", "type": "message", "role": "assistant", "content": [call], "stop_reason": "tool_use"}
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        """Says nothing: the output is that of the checks."""


@contextmanager
def provider():
    """The provider, running: an object with its `url`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    server.url = f"http://127.0.0.1:{server.server_port}"
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()


def ask(base, call):
    """Lets the model call a tool under this id. Returns the owner."""
    body = json.dumps({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": call}]}).encode()
    headers = {"x-api-key": KEY, "content-type": "application/json", "x-antiphon-session": "my-session"}
    request = urllib.request.Request(f"{base}/anthropic/v1/messages", data=body, headers=headers)
    with urllib.request.urlopen(request) as answer:
        answer.read()
        return answer.headers["x-antiphon-owner"]


if __name__ == "__main__":
    sys.exit(main())
