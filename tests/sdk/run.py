#!/usr/bin/env python3
"""The official SDKs through a running Antiphon, against a strict provider.

    python3 tests/sdk/run.py [PATH OF THE BINARY]      default: $ANTIPHON_BIN, else target/debug/antiphon
    python3 tests/sdk/run.py --direct-only             the provider and the SDKs alone

Makes its own virtual environment in target/sdk-venv. The last line is `N passed, N failed`; it exits with 1 if any
failed, and with 0 and a line `skipped: …` if the SDKs cannot be installed.
"""

import hashlib
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
REQUIREMENTS = HERE / "requirements.txt"
INSIDE = "ANTIPHON_SDK_VENV"


def environment():
    """This script again, inside a virtual environment that holds the SDKs."""
    home = TARGET / "sdk-venv"
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp = home / hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:16]
    if not stamp.exists():
        try:
            venv.create(home, with_pip=True, clear=True)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"skipped: no virtual environment with pip: {error}")
            return 0
        install = [str(python), "-m", "pip", "install", "--quiet", "-r", str(REQUIREMENTS)]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
            print(f"skipped: pip cannot install the SDKs: {lines[-1]}")
            return 0
        stamp.touch()
    return subprocess.run([str(python), __file__, *sys.argv[1:]], env=os.environ | {INSIDE: "1"}, check=False).returncode


# The conversations. The broken ones: two calls, the user spoke while they ran, one result came late, one never.

TOOLS = [{"name": "read_file", "description": "Reads a file.", "input_schema": {"type": "object", "properties": {}}}]


def use(id_):
    return {"type": "tool_use", "id": id_, "name": "read_file", "input": {"path": f"{id_}.txt"}}


def result(id_):
    return {"type": "tool_result", "tool_use_id": id_, "content": f"the real result of {id_} – ünïcode, \"quotes\""}


MESSAGES = {
    "healthy": [
        {"role": "user", "content": "Read both files."},
        {"role": "assistant", "content": [{"type": "text", "text": "Reading."}, use("toolu_01A"), use("toolu_01B")]},
        {"role": "user", "content": [result("toolu_01B"), result("toolu_01A"), {"type": "text", "text": "Go on."}]},
    ],
    "broken": [
        {"role": "user", "content": "Read both files."},
        {"role": "assistant", "content": [{"type": "text", "text": "Reading."}, use("toolu_01A"), use("toolu_01B")]},
        {"role": "user", "content": "Hurry!"},
        {"role": "assistant", "content": "One moment."},
        {"role": "user", "content": [result("toolu_01A"), {"type": "text", "text": "Go on."}]},
    ],
}


def call(id_):
    return {"id": id_, "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a.txt"}'}}


def tool(id_):
    return {"role": "tool", "tool_call_id": id_, "content": f"the real result of {id_} – ünïcode, \"quotes\""}


CHAT = {
    "healthy": [
        {"role": "system", "content": "You are an agent."},
        {"role": "user", "content": "Read both files."},
        {"role": "assistant", "content": None, "tool_calls": [call("call_A"), call("call_B")]},
        tool("call_B"),
        tool("call_A"),
        {"role": "user", "content": "Go on."},
    ],
    "broken": [
        {"role": "user", "content": "Read both files."},
        {"role": "assistant", "content": None, "tool_calls": [call("call_A"), call("call_B")]},
        {"role": "user", "content": "Hurry!"},
        {"role": "assistant", "content": "One moment."},
        tool("call_A"),
        {"role": "user", "content": "Go on."},
    ],
}

MISSING = {
    "anthropic": "`tool_use` ids were found without `tool_result` blocks immediately after: toolu_01A, toolu_01B.",
    "openai": "The following tool_call_ids did not have response messages: call_A, call_B",
}
REAL = {"anthropic": ["Hurry!", "Go on.", "the real result of toolu_01A"], "openai": ["Hurry!", "Go on.", "the real result of call_A"]}


def ask_anthropic(base, kind, stream):
    """The text of the answer through the official SDK."""
    import anthropic

    client = anthropic.Anthropic(base_url=base, api_key="sk-test", max_retries=0, timeout=30)
    request = {"model": "claude-opus-4-5", "max_tokens": 64, "tools": TOOLS, "messages": MESSAGES[kind]}
    if stream:
        with client.messages.stream(**request) as events:
            return "".join(events.text_stream)
    return client.messages.create(**request).content[0].text


def ask_openai(base, kind, stream):
    """The text of the answer through the official SDK."""
    import openai

    client = openai.OpenAI(base_url=f"{base}/v1", api_key="sk-test", max_retries=0, timeout=30)
    answer = client.chat.completions.create(model="gpt-4.1", messages=CHAT[kind], stream=stream)
    if stream:
        return "".join(chunk.choices[0].delta.content or "" for chunk in answer if chunk.choices)
    return answer.choices[0].message.content


ASK = {"anthropic": ask_anthropic, "openai": ask_openai}


def refused(name):
    """The SDK's class for a 400."""
    module = __import__(name)
    return module.BadRequestError


# Running Antiphon.


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def fetch(url):
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read().decode()


@contextmanager
def antiphon(binary, provider):
    """A running Antiphon in front of the provider: (data URL, admin URL)."""
    data, admin = free_port(), free_port()
    command = [str(binary), "serve", "--listen", f"127.0.0.1:{data}", "--admin-listen", f"127.0.0.1:{admin}"]
    for name in ("anthropic", "openai"):
        command += ["--upstream", f"{name}={provider.url}"]
    with tempfile.TemporaryDirectory() as home:
        keep = {key: value for key, value in os.environ.items() if not key.startswith("ANTIPHON_")}
        homes = {key: home for key in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")}
        log = open(Path(home) / "log", "w+b")
        process = subprocess.Popen(command, cwd=home, env=keep | homes, stdout=log, stderr=log)
        try:
            wait(process, log, f"http://127.0.0.1:{admin}")
            yield f"http://127.0.0.1:{data}", f"http://127.0.0.1:{admin}"
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            log.close()


def wait(process, log, admin):
    """Until it is ready, or the reason why not."""
    for _ in range(150):
        if process.poll() is not None:
            break
        try:
            fetch(f"{admin}/readyz")
            return
        except OSError:
            time.sleep(0.1)
    log.seek(0)
    raise RuntimeError(f"{process.args} did not get ready: {log.read().decode(errors='replace')[-2000:]}")


# The checks. Each yields its name and what is wrong, or an empty string.


def check_direct(provider):
    """The provider alone: it takes the healthy and refuses the broken."""
    for name, ask in ASK.items():
        for stream in (False, True):
            label = f"{name} {'stream' if stream else 'plain'} direct"
            said = ask(provider.url, "healthy", stream)
            yield f"{label}: healthy is answered", "" if said == "I hear you." else repr(said)
            try:
                wrong = f"answered: {ask(provider.url, 'broken', stream)}"
            except refused(name) as refusal:
                wrong = "" if MISSING[name] in str(refusal) else str(refusal)
            yield f"{label}: broken is refused", wrong


def check_through(provider, base):
    """Through Antiphon: the healthy arrives byte for byte, the broken is answered with all that was real in it."""
    for name, ask in ASK.items():
        for stream in (False, True):
            label = f"{name} {'stream' if stream else 'plain'} through antiphon"
            ask(provider.url, "healthy", stream)
            direct = provider.seen[-1].body
            said = attempt(ask, f"{base}/{name}", "healthy", stream)
            yield f"{label}: healthy is answered", "" if said == "I hear you." else said
            sent = provider.seen[-1].body
            yield f"{label}: healthy is byte-identical", "" if sent == direct else f"{direct!r} became {sent!r}"
            said = attempt(ask, f"{base}/{name}", "broken", stream)
            yield f"{label}: broken is answered", "" if said == "I hear you." else said
            seen = provider.seen[-1]
            text = seen.body.decode()
            lost = [words for words in REAL[name] if words not in text]
            yield f"{label}: nothing real is lost", f"lost {lost} in {text}" if lost or seen.status != 200 else ""


def attempt(ask, *arguments):
    """The answer, or the error as text."""
    try:
        return ask(*arguments)
    except Exception as error:  # noqa: BLE001, any error is a failed check
        return f"{type(error).__name__}: {error}"


def check_metrics(admin):
    """The repairs are counted: two broken requests of each format."""
    text = fetch(f"{admin}/metrics")
    for kind in ("anthropic", "openai_chat"):
        rows = re.findall(rf'^antiphon_repairs_total{{[^}}]*format="{kind}"[^}}]*}} (\d+)', text, re.MULTILINE)
        counted = sum(map(int, rows))
        yield f"metrics: repairs of {kind} are counted", "" if counted >= 2 else f"{counted} in\n{text[:3000]}"


def report(checks, tally):
    for name, wrong in checks:
        tally[bool(wrong)] += 1
        print(f"FAILED {name}: {wrong}" if wrong else f"ok {name}", flush=True)


def main():
    for key in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        os.environ.pop(key, None)
    sys.path.insert(0, str(HERE))
    from strict_provider import StrictProvider

    arguments = [argument for argument in sys.argv[1:] if argument != "--direct-only"]
    binary = Path(arguments[0] if arguments else os.environ.get("ANTIPHON_BIN") or TARGET / "debug" / "antiphon")
    tally = [0, 0]
    with StrictProvider() as provider:
        report(check_direct(provider), tally)
        if "--direct-only" not in sys.argv:
            try:
                with antiphon(binary.resolve(), provider) as (base, admin):
                    report(check_through(provider, base), tally)
                    report(check_metrics(admin), tally)
            except (OSError, RuntimeError) as error:
                report([("antiphon runs", str(error))], tally)
    print(f"{tally[0]} passed, {tally[1]} failed")
    return 1 if tally[1] else 0


if __name__ == "__main__":
    sys.exit(main() if os.environ.get(INSIDE) else environment())
