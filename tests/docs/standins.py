#!/usr/bin/env python3
"""Stand-ins for the programs that the documents' commands call; the name of the program decides.

antiphon    the real one; `serve` runs on free ports until it is ready, and is then stopped
cargo       `cargo run --release -- …` is `antiphon …`; `.ci/run` runs `cargo test`
agents      send one request to the base URL of their variable: it must come through Antiphon
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "sdk"))

from running import free_port  # noqa: E402

REAL = os.environ["ANTIPHON_REAL"]
SECONDS = 60
HELLO = [{"role": "user", "content": "hello"}]
CHAT = ("/chat/completions", {"model": "m", "messages": HELLO})
MESSAGES = ("/v1/messages", {"model": "m", "max_tokens": 9, "messages": HELLO})
GEMINI = ("/v1beta/models/m:generateContent", {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]})
# The variable that each agent reads, and its request.
AGENTS = {
    "claude": ("ANTHROPIC_BASE_URL", *MESSAGES),
    "aider": ("ANTHROPIC_BASE_URL", *MESSAGES),
    "qwen": ("OPENAI_BASE_URL", *CHAT),
    "copilot": ("COPILOT_PROVIDER_BASE_URL", *CHAT),
    "gemini": ("GOOGLE_GEMINI_BASE_URL", *GEMINI),
    "codex": ("", "/responses", {"model": "m", "input": "hello"}),
    "opencode": ("", "/messages", MESSAGES[1]),
    "cline": ("", *CHAT),
}


def base_of(name, arguments):
    """Returns the base URL that an agent finds where it looks for one."""
    if name == "codex":
        [setting] = [word for word in arguments if word.startswith("openai_base_url=")]
        return json.loads(setting.partition("=")[2])
    if name == "opencode":
        config = json.loads(os.environ["OPENCODE_CONFIG_CONTENT"])
        return config["provider"]["anthropic"]["options"]["baseURL"]
    if name == "cline":
        return arguments[arguments.index("-b") + 1]
    if name == "gemini" and "CODE_ASSIST_ENDPOINT" in os.environ:
        return os.environ["CODE_ASSIST_ENDPOINT"]
    return os.environ[AGENTS[name][0]]


def ask(base, path, body):
    """Sends one request, which must come through Antiphon."""
    request = urllib.request.Request(base + path, json.dumps(body).encode())
    request.add_header("content-type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            headers = answer.headers
    except urllib.error.HTTPError as refusal:
        # The provider of the tests does not have every path.
        headers = refusal.headers
    if not headers["x-antiphon-request-id"] or headers["x-antiphon-fault"]:
        sys.exit(f"{request.full_url} does not lead through Antiphon to the provider")


def run_antiphon(arguments):
    """Runs the real program."""
    commands = ("run", "once", "mcp", "webhooks", "tasks", "intents", "check", "repair", "demo", "config", "rules", "store", "result", "healthcheck", "completions", "man")
    is_server = not arguments or arguments[0] == "serve" or arguments[0].startswith("--upstream")
    if is_server:
        return serve(arguments)
    if arguments[0] not in (*commands, "env", "help", "version", "--help", "--version"):
        sys.exit(f"no such command of antiphon: {arguments[0]}")
    return subprocess.run([REAL, *arguments], check=False).returncode


def serve(arguments):
    """Starts the proxy, waits until it is ready, and stops it."""
    listen, admin = free_address(), free_address()
    with tempfile.TemporaryDirectory() as state:
        more = {"ANTIPHON_LISTEN": listen, "ANTIPHON_ADMIN_LISTEN": admin, "XDG_STATE_HOME": state}
        # The flags of the example file would win over the variables.
        process = subprocess.Popen(
            [REAL, *arguments, *([] if arguments else ["serve"]), "--listen", listen, "--admin-listen", admin],
            env=os.environ | more,
        )
        try:
            wait_until_ready(process, admin)
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(SECONDS)
    return code


def wait_until_ready(process, admin):
    until = time.monotonic() + SECONDS
    url = f"http://{admin}/readyz"
    while time.monotonic() < until and process.poll() is None:
        if subprocess.run([REAL, "healthcheck", "--url", url], capture_output=True, check=False).returncode == 0:
            return
        time.sleep(0.05)
    sys.exit("the proxy did not get ready")


def free_address():
    return f"127.0.0.1:{free_port()}"


def run_cargo(arguments):
    if arguments == ["test"]:
        return 0
    if arguments[:2] == ["run", "--release"]:
        return run_antiphon(arguments[3:])
    sys.exit(f"no such command of cargo here: {arguments}")


def main():
    name, arguments = Path(sys.argv[0]).name, sys.argv[1:]
    if name == "antiphon":
        return run_antiphon(arguments)
    if name == "cargo":
        return run_cargo(arguments)
    _, path, body = AGENTS[name]
    ask(base_of(name, arguments), path, body)
    return 0


if __name__ == "__main__":
    sys.exit(main())
