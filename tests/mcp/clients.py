#!/usr/bin/env python3
"""Lets MCP clients write their own files, wraps these with `antiphon mcp wrap`, and lets the clients read them again.

    python3 tests/mcp/clients.py [PATH OF THE BINARY]     default: $ANTIPHON_BIN, else target/debug/antiphon

Each client gets a home of its own and adds a server in its own way. Wrapped, its list must name the server and the
program `antiphon`, and unwrapped, each file must have its old bytes. Clients that cannot be installed are skipped aloud.
The last line is `N passed, N failed`, and it exits with 1 if any failed.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or HERE.parent.parent / "target").resolve()
SERVER = HERE / "toy_server.py"
SECRET = "toy-secret-5c1f"


@dataclass
class Client:
    """A client: its package, its program, and the commands by which it adds and lists servers."""

    name: str
    package: str
    version: str
    programs: list
    # Commands that add servers called `toy`, without the program.
    adds: list
    # Files that they write: below the home directory, or below the project's with `project/`.
    files: list
    listing: list
    # Files that are written for a client that has no command for it.
    written: dict = field(default_factory=dict)
    # Words of the list beside `toy`.
    words: tuple = ("antiphon",)


TOY = [sys.executable, str(SERVER), "--slow", "no"]
CLIENTS = [
    Client(
        "Claude Code",
        "@anthropic-ai/claude-code",
        "2.1.332",
        ["node_modules/@anthropic-ai/claude-code-*/claude", "node_modules/@anthropic-ai/claude-code/cli.js"],
        [
            ["mcp", "add", "toy", "-e", f"KEY={SECRET}", "--", *TOY],
            ["mcp", "add", "-s", "user", "toy-of-user", "--", *TOY],
            ["mcp", "add", "-s", "project", "toy-of-project", "--", *TOY],
        ],
        [".claude.json", "project/.mcp.json"],
        ["mcp", "list"],
    ),
    Client(
        "Codex",
        "@openai/codex",
        "0.171.0",
        ["node_modules/@openai/codex-*/vendor/*/bin/codex", "node_modules/@openai/codex/bin/codex.js"],
        [["mcp", "add", "toy", "--env", f"KEY={SECRET}", "--", *TOY]],
        [".codex/config.toml"],
        ["mcp", "list"],
    ),
    Client(
        "gemini-cli",
        "@google/gemini-cli",
        "0.61.0",
        ["node_modules/@google/gemini-cli/bundle/gemini.js", "node_modules/@google/gemini-cli/dist/index.js"],
        [
            ["mcp", "add", "-s", "user", "-e", f"KEY={SECRET}", "--timeout", "4000", "toy", *TOY[:2]],
            ["mcp", "add", "toy-of-project", *TOY[:2]],
        ],
        [".gemini/settings.json", "project/.gemini/settings.json"],
        ["mcp", "list"],
    ),
    Client(
        "opencode",
        "opencode-ai",
        "1.18.33",
        ["node_modules/opencode-linux-*/bin/opencode", "node_modules/opencode-darwin-*/bin/opencode"],
        [],
        [".config/opencode/opencode.jsonc"],
        ["mcp", "list"],
        {
            ".config/opencode/opencode.jsonc": "{\n  // the toy\n  \"mcp\": {\n    \"toy\": { \"type\": \"local\", "
            + f"\"command\": {json.dumps(TOY)}, \"environment\": {{ \"KEY\": \"{SECRET}\" }}, \"timeout\": 5000, }},\n  }},\n}}\n"
        },
    ),
]


def program(client):
    """The command of a client; None, with a word why, where it cannot be had."""
    home = TARGET / "mcp-clients" / f"{client.package.replace('/', '+')}-{client.version}"
    mark = home / "installed"
    if not mark.exists():
        npm = shutil.which("npm")
        if not npm:
            print(f"skipped: {client.name}: npm is not installed")
            return None
        home.mkdir(parents=True, exist_ok=True)
        (home / "package.json").write_text(json.dumps({"private": True}), "utf-8")
        package = f"{client.package}@{client.version}"
        install = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", package]
        done = subprocess.run(install, cwd=home, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            why = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
            print(f"skipped: {client.name} {client.version}: npm cannot install it: {why[0]}")
            return None
        mark.touch()
    for pattern in client.programs:
        # Of several builds for one machine the one that runs on every processor.
        for found in sorted(home.glob(pattern), key=lambda path: ("baseline" not in str(path), str(path))):
            if "musl" in str(found) and "opencode" in str(found) and platform.libc_ver()[0] == "glibc":
                continue
            if found.suffix != ".js":
                return [str(found)]
            if node := shutil.which("node"):
                return [node, str(found)]
    print(f"skipped: {client.name} {client.version} has no program for this machine")
    return None


class Home:
    """A home directory and a project of a client, with the binary in the PATH."""

    def __init__(self, folder, binary, command):
        self.folder, self.project, self.command = folder, folder / "project", command
        programs = folder / "programs"
        for path in (self.project, programs):
            path.mkdir()
        (programs / "antiphon").symlink_to(binary)
        self.environment = {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "TERM": "dumb",
            "CI": "1",
        }

    def run(self, command):
        return subprocess.run(
            command,
            cwd=self.project,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def ask_client(self, arguments):
        done = self.run([*self.command, *arguments])
        if done.returncode != 0:
            raise RuntimeError(f"{arguments[:2]} exits with {done.returncode}: {(done.stderr or done.stdout)[-300:]}")
        return done.stdout + done.stderr

    def change(self, verb, file):
        done = self.run(["antiphon", "mcp", verb, "--write", str(file)])
        if done.returncode != 0:
            raise RuntimeError(f"{verb} exits with {done.returncode}: {done.stderr[-300:]}")
        if SECRET in done.stdout + done.stderr:
            raise RuntimeError(f"{verb} prints a value of the file")


def faults(client, home):
    """What is wrong, in sentences."""
    for name, text in client.written.items():
        path = home.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    for arguments in client.adds:
        home.ask_client(arguments)
    # At its first start a client may add to its files.
    home.ask_client(client.listing)
    files = [home.folder / name for name in client.files]
    before = {file: file.read_bytes() for file in files}
    for file in files:
        home.change("wrap", file)
        if b"antiphon" not in file.read_bytes():
            yield f"{file.name} is not wrapped"
    listed = home.ask_client(client.listing)
    for word in ("toy", *client.words):
        if word not in listed:
            yield f"{word} is not in the list of the client: {listed[-400:]}"
    for file in files:
        home.change("unwrap", file)
        # A client may note things of its own in its file when it lists.
        if file.read_bytes() != before[file] and b"antiphon" in file.read_bytes():
            yield f"{file.name} is still wrapped"
        if file.name != ".claude.json" and file.read_bytes() != before[file]:
            yield f"{file.name} has other bytes than before"
    if "toy" not in home.ask_client(client.listing):
        yield "toy is not in the list after unwrap"


def main():
    binary = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ANTIPHON_BIN") or TARGET / "debug" / "antiphon")
    if not binary.exists():
        print(f"no binary at {binary}: cargo build, or name another")
        return 1
    tally = [0, 0]
    for client in CLIENTS:
        command = program(client)
        if not command:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                wrong = list(faults(client, Home(Path(folder).resolve(), binary.resolve(), command)))
            except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
                wrong = [str(error)]
        name = f"{client.name} {client.version}"
        tally[bool(wrong)] += 1
        print(f"FAILED {name}: {'; '.join(wrong)}" if wrong else f"ok {name}", flush=True)
    print(f"{tally[0]} passed, {tally[1]} failed")
    return int(tally[1] > 0)


if __name__ == "__main__":
    sys.exit(main())
