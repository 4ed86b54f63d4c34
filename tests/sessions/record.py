#!/usr/bin/env python3
"""Makes samples of session files: drives a coding agent through one story on loopback, and scrubs what it wrote.

    python3 tests/sessions/record.py [CLIENT [VERSION]]…      default: every version of installs.py

Writes samples/CLIENT-VERSION.jsonl, and for Claude Code its sub-agent's file. Strings that are not of the story become
filler: see scrub.py. It exits with 0 and `skipped: …` where a client cannot be installed, and with 1 if one fails.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from driving import Home
from installs import VERSIONS, program
from scrub import Scrubber
from server import serving
from story import FILES, PROMPTS, SESSION, SIGNATURE, script

SAMPLES = Path(__file__).resolve().parent / "samples"
BYTES_MAX = 60_000


def agent_tool(client, version):
    """The name of the tool that starts a sub-agent."""
    if client != "claude-code":
        return None
    return "Agent" if tuple(map(int, version.split("."))) > (2, 1, 100) else "Task"


def told_story(home, version):
    """Plays the story: the id of the session."""
    for name, text in FILES.items():
        (home.work / name).write_text(text, "utf-8")
    session = SESSION
    with serving(script(home.client, agent_tool(home.client, version))) as provider:
        for number, prompt in enumerate(PROMPTS.values()):
            code, printed = home.ask(provider, prompt, session, resume=number > 0)
            if code or provider.refusals:
                raise RuntimeError(f"{prompt!r} failed with {code}: {provider.refusals} {printed[-500:]}")
            if home.client == "codex":
                session = home.session_files()[0].stem[-36:]
    return session


def recorded(client, version, command):
    """Records one client, and writes its samples."""
    top = Path(tempfile.mkdtemp(prefix="s-"))
    try:
        home = Home(client, command, top / "home", top / "work")
        session = told_story(home, version)
        scrubber = Scrubber(top, SIGNATURE)
        for file in home.session_files():
            if session in file.name or client == "copilot":
                name = f"{client}-{version}.jsonl"
            elif session in str(file):
                name = f"{client}-{version}.subagent.jsonl"
            else:
                continue
            data = scrubber.file(file.read_bytes())
            if not data:
                continue
            if len(data) > BYTES_MAX:
                raise RuntimeError(f"{name} has {len(data)} bytes, which is above {BYTES_MAX}")
            SAMPLES.mkdir(exist_ok=True)
            (SAMPLES / name).write_bytes(data)
            print(f"{name}: {len(data)} bytes, {data.count(10)} lines")
    finally:
        shutil.rmtree(top, ignore_errors=True)


def main():
    asked = sys.argv[1:]
    clients = [asked[0]] if asked else list(VERSIONS)
    failed = False
    for client in clients:
        for version in asked[1:] or VERSIONS[client]:
            command = program(client, version)
            if not command:
                continue
            try:
                recorded(client, version, command)
            except RuntimeError as error:
                failed = True
                print(f"FAILED {client} {version}: {error}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
