"""Installs the coding agents whose session files are tested, below the target folder, each version on its own."""

import json
import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or HERE.parent.parent / "target").resolve()

PACKAGES = {
    "claude-code": "@anthropic-ai/claude-code",
    "codex": "@openai/codex",
    "copilot": "@github/copilot",
    "qwen-code": "@qwen-code/qwen-code",
}
# The versions that are driven, the newest first. `docs/doctor.md` says what each does with damage.
VERSIONS = {
    "claude-code": ["2.1.332", "2.1.42", "2.0.32"],
    "codex": ["0.171.0"],
    "copilot": ["1.0.102"],
    "qwen-code": ["0.24.4"],
}
# Where a package has its program: a binary for this machine, or a script for Node.
PROGRAMS = {
    "claude-code": ["node_modules/@anthropic-ai/claude-code-*/claude", "node_modules/@anthropic-ai/claude-code/cli.js"],
    "codex": ["node_modules/@openai/codex-*/vendor/*/bin/codex", "node_modules/@openai/codex/bin/codex.js"],
    "copilot": ["node_modules/@github/copilot-*/copilot"],
    "qwen-code": ["node_modules/@qwen-code/qwen-code/cli.js"],
}


def program(client, version):
    """The command of a client in one version; None, with a word why, where it cannot be had."""
    home = TARGET / "session-clients" / f"{client}-{version}"
    package = f"{PACKAGES[client]}@{version}"
    mark = home / "installed"
    if not mark.exists():
        npm = shutil.which("npm")
        if not npm:
            print(f"skipped: {client} {version}: npm is not installed")
            return None
        home.mkdir(parents=True, exist_ok=True)
        (home / "package.json").write_text(json.dumps({"private": True}), "utf-8")
        install = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", package]
        done = subprocess.run(install, cwd=home, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            why = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
            print(f"skipped: {client} {version}: npm cannot install it: {why[0]}")
            return None
        mark.touch()
    for pattern in PROGRAMS[client]:
        for found in sorted(home.glob(pattern)):
            if found.suffix != ".js":
                return [str(found)]
            node = shutil.which("node")
            if node:
                return [node, str(found)]
    print(f"skipped: {client} {version} has no program for this machine")
    return None


def programs(client=None):
    """Each client, version and command that can be run here."""
    for name, versions in VERSIONS.items():
        for version in versions:
            if client in (None, name) and (command := program(name, version)):
                yield name, version, command
