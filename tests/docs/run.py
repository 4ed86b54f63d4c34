#!/usr/bin/env python3
"""Runs the code blocks of README.md and docs/*.md against a running Antiphon and a strict provider.

    python3 tests/docs/run.py [PATH OF THE BINARY]     default: $ANTIPHON_BIN, else target/debug/antiphon

The language of a block decides what happens:

    sh          must succeed, in a folder with the repository's files and a home of its own
    console     each `$ COMMAND` must print the lines below it; `…` stands for any text, and alone for any lines
    toml        must pass `antiphon config check`; below `<!-- file of: NAME -->` it is only parsed
    json, yaml  must parse
    python, js  must succeed, with the SDKs of tests/sdk if they import any
    ts          must have right types and succeed, with the compiler of typescript/
    rust        runs in `cargo test`, if it is in a document of COMPILED
    text, mermaid   are not run, and must not contain commands

A block below `<!-- not run: REASON -->` is skipped; tests/frozen/documents-not-run.txt lists these. Blocks below
`<!-- run: -->`, `<!-- service: -->` and `<!-- agent: -->` belong to tests/sdk/docs.py. Agents and cargo are stand-ins
(standins.py). The last line is `N passed, N failed`; it exits with 1 if any failed.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "sdk"))

from install import node_sdks, node_with, python_sdks, python_with  # noqa: E402
from running import antiphon  # noqa: E402
from strict_provider import StrictProvider  # noqa: E402

SECONDS = 120
BLOCK = re.compile(r"^(?:<!-- ([\w ]+): ?(.*?) -->\n)?^```(\w*)\n(.*?)^```$", re.S | re.M)
ELSEWHERE = ("run", "service", "agent")
PROSE = ("text", "mermaid")
STANDINS = ("antiphon", "cargo", "claude", "gemini", "copilot", "qwen", "aider", "codex", "opencode", "cline")
HOSTS = ("https://chatgpt.com/backend-api/codex", "https://cloudcode-pa.googleapis.com")
UPSTREAMS = ["anthropic", "openai", "gemini", "chatgpt"]
# Documents whose Rust is compiled and run by `cargo test --doc`: src/lib.rs includes them.
COMPILED = ("README.md", "docs/agents.md")
# Modules that blocks may import without the SDKs.
PLAIN_PYTHON = ("fcntl", "json", "os", "subprocess", "tempfile", "pathlib")
# Programs that some blocks need, and that CI does not install.
NEEDED = ("jq",)
# The secret of the services in the documents.
WEBHOOK_SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY")
# Where the documents have the files of [server.tls].
TLS_FOLDER = "/etc/antiphon/tls"
# Where they have a file of rows.
RULES_FILE = "/etc/antiphon/rules.toml"


class Failed(Exception):
    """The block does not do what the document says."""


class Skipped(Exception):
    """A program that the block needs cannot be installed."""


@dataclass
class Block:
    """A fenced block: its place, the comment above it, its language and its text."""

    place: str
    mark: str
    words: str
    language: str
    code: str

    @property
    def name(self):
        return f"{self.place} ({self.language})"


def blocks_of(document):
    """Returns the blocks of a document."""
    text = document.read_text()
    return [
        Block(
            f"{document.relative_to(ROOT)}:{text.count(chr(10), 0, found.start(3)) + 1}",
            found[1] or "",
            found[2] or "",
            found[3],
            found[4],
        )
        for found in BLOCK.finditer(text)
    ]


class Sandbox:
    """A folder with the repository's files, a home of its own, stand-ins for agents, and a running proxy."""

    def __init__(self, folder, binary, base, admin, provider):
        self.addresses = {
            "127.0.0.1:4747": base.removeprefix("http://"),
            "127.0.0.1:4748": admin.removeprefix("http://"),
            "127.0.0.1:8000": provider.url.removeprefix("http://"),
        }
        # No block reaches a real provider.
        self.hosts = dict.fromkeys(HOSTS, provider.url)
        self.folder = folder
        self.secrets = folder / "secrets"
        self.secrets.mkdir()
        for entry in ROOT.iterdir():
            if entry.name not in ("target", ".git", "home"):
                (folder / entry.name).symlink_to(entry)
        shutil.copy(ROOT / "config.example.toml", folder / "antiphon.toml")
        programs = folder / "programs"
        programs.mkdir()
        for name in STANDINS:
            (programs / name).symlink_to(HERE / "standins.py")
        home = folder / "home"
        keep = {key: value for key, value in os.environ.items() if not key.startswith(("ANTIPHON_", "XDG_"))}
        self.environment = keep | {
            "HOME": str(home),
            "XDG_STATE_HOME": str(home / "state"),
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "ANTIPHON_REAL": str(binary),
            "ANTIPHON_LISTEN": self.addresses["127.0.0.1:4747"],
            "ANTIPHON_ADMIN_LISTEN": self.addresses["127.0.0.1:4748"],
            "CREDENTIALS_DIRECTORY": str(self.secrets),
            "NO_COLOR": "1",
            "COLUMNS": "120",
        }
        self.environment |= {key: "sk-docs" for key in KEYS}
        self.environment["LEDGER_URL"] = "postgres://antiphon@127.0.0.1/antiphon"

    def with_addresses(self, code):
        """Puts the addresses of this run into a block."""
        for written, used in (self.addresses | self.hosts).items():
            code = code.replace(written, used)
        return code

    def without_addresses(self, output):
        """Puts the documented addresses into an output."""
        for written, used in self.addresses.items():
            output = output.replace(used, written)
        return output.replace("\r", "")

    def run(self, command, cwd=None, more=None):
        """Runs a command. Returns its exit code and everything that it printed."""
        done = subprocess.run(
            command,
            cwd=cwd or self.folder,
            env=self.environment | (more or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return done.returncode, self.without_addresses(done.stdout)


def must_succeed(sandbox, command, cwd=None, more=None):
    """Runs a command that must exit with 0."""
    code, output = sandbox.run(command, cwd, more)
    if code != 0:
        raise Failed(f"exit code {code}\n{output}")


def check_sh(sandbox, block):
    for program in NEEDED:
        if re.search(rf"\b{program} ", block.code) and not shutil.which(program):
            raise Skipped(f"{program} is not installed")
    must_succeed(sandbox, ["sh", "-e", "-c", sandbox.with_addresses(block.code)])


def check_console(sandbox, block):
    if not block.code.startswith("$ "):
        raise Failed("a console block begins with `$ `")
    for step in re.split(r"^\$ ", block.code, flags=re.M)[1:]:
        command, _, wanted = step.partition("\n")
        _, output = sandbox.run(["sh", "-c", sandbox.with_addresses(command)])
        if not pattern(wanted).fullmatch(output.rstrip("\n") + "\n"):
            raise Failed(f"$ {command}\nprinted\n{output}\nand not\n{wanted}")


def pattern(wanted):
    """Returns what an output must match. `…` stands for any text, and alone on a line for any lines."""
    lines = [
        r"(?:[^\n]*\n)*?" if line == "…" else r"[^\n]*".join(map(re.escape, line.split("…"))) + r"\n"
        for line in wanted.splitlines()
    ]
    return re.compile("".join(lines) or r"\n")


def tls_folder(sandbox):
    """A folder with a certificate, its key and a CA, under the names that the documents use."""
    folder = sandbox.folder / "tls"
    if not folder.exists():
        if not shutil.which("openssl"):
            raise Skipped("openssl is not installed")
        folder.mkdir()
        new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        new += ["-subj", "/CN=llm.example.org", "-addext", "subjectAltName=DNS:llm.example.org"]
        must_succeed(sandbox, [*new, "-keyout", str(folder / "privkey.pem"), "-out", str(folder / "fullchain.pem")])
        shutil.copy(folder / "fullchain.pem", folder / "clients.pem")
    return folder


def check_toml(sandbox, block):
    parsed = tomllib.loads(block.code)
    if block.mark == "file of":
        return
    assert isinstance(parsed, dict)
    code = block.code.replace("/run/secrets", str(sandbox.secrets))
    if TLS_FOLDER in code:
        code = code.replace(TLS_FOLDER, str(tls_folder(sandbox)))
    if RULES_FILE in code:
        rules = sandbox.folder / "rules-of-block.toml"
        rules.write_text("")
        rules.chmod(0o644)
        code = code.replace(f'rules_file = "{RULES_FILE}"', f"rules_file = '{rules}'")
    for path in re.findall(r'_file = "(.*?)"', code):
        Path(path.replace("${CREDENTIALS_DIRECTORY}", str(sandbox.secrets))).write_text("sk-docs\n")
    names = re.findall(r"\$\{(\w+)", code)
    variables = {name: WEBHOOK_SECRET if name.endswith("_SECRET") else "sk-docs" for name in names}
    variables |= sandbox.environment
    file = sandbox.folder / "block.toml"
    file.write_text(code)
    must_succeed(sandbox, ["antiphon", "config", "check", "-c", str(file)], more=variables)


def check_json(_, block):
    json.loads(block.code)


def check_yaml(_, block):
    try:
        import yaml
    except ImportError:
        raise Skipped("PyYAML is not installed") from None
    yaml.safe_load(block.code)


def check_python(sandbox, block):
    imported = re.findall(r"^\s*(?:import|from) (\w+)", block.code, re.M)
    if all(name in PLAIN_PYTHON for name in imported):
        must_succeed(sandbox, [sys.executable, "-c", sandbox.with_addresses(block.code)])
        return
    sdk = HERE.parent / "sdk"
    if "langchain" in block.code:
        python = python_with(sdk / "frameworks.txt", "sdk-frameworks", "the frameworks for Python")
    else:
        python = python_sdks()
    if not python:
        raise Skipped("the SDKs for Python are not installed")
    must_succeed(sandbox, [str(python), "-c", sandbox.with_addresses(block.code)])


def check_js(sandbox, block):
    imported = re.findall(r"""\bfrom ["']([^"']+)["']""", block.code)
    if imported and all(name.startswith("node:") for name in imported):
        if not shutil.which("node"):
            raise Skipped("node is not installed")
        must_succeed(sandbox, ["node", "--input-type=module", "-e", block.code])
        return
    folder = node_sdks()
    if not folder:
        raise Skipped("the SDKs for Node are not installed")
    must_succeed(sandbox, ["node", "--input-type=module", "-e", sandbox.with_addresses(block.code)], folder)


def check_ts(sandbox, block):
    """Checks the types, and runs what is left without them. Node 22.18 strips the same types by itself."""
    folder = node_with(HERE / "typescript", "docs-typescript", "TypeScript")
    if not folder:
        raise Skipped("TypeScript is not installed")
    (folder / "block.ts").write_text(block.code)
    compiler = [str(folder / "node_modules/typescript/bin/tsc"), "--strict", "--erasableSyntaxOnly", "--outDir", "out"]
    compiler += ["--target", "es2023", "--module", "nodenext", "--types", "node", "block.ts"]
    must_succeed(sandbox, ["node", *compiler], folder)
    must_succeed(sandbox, ["node", str(folder / "out" / "block.js")])


def check_rust(_, block):
    if not block.place.startswith(tuple(f"{name}:" for name in COMPILED)):
        raise Failed(f"only the Rust of these is compiled: {', '.join(COMPILED)}")


def check_prose(_, block):
    if re.search(r"^\$ ", block.code, re.M):
        raise Failed("commands belong into a block with the language `console`")


CHECKS = {
    "sh": check_sh,
    "console": check_console,
    "toml": check_toml,
    "json": check_json,
    "yaml": check_yaml,
    "python": check_python,
    "js": check_js,
    "ts": check_ts,
    "rust": check_rust,
} | dict.fromkeys(PROSE, check_prose)


def run_all(sandbox, blocks):
    """Checks each block. Returns the number of those that passed and failed."""
    passed = failed = 0
    for block in blocks:
        if block.mark in ELSEWHERE:
            continue
        if block.mark == "not run":
            print(f"skipped: {block.name}: {block.words}")
            continue
        try:
            check = CHECKS.get(block.language)
            if not check:
                raise Failed(f"no such language of blocks: {block.language or 'none'}")
            check(sandbox, block)
            passed += 1
            print(f"ok {block.name}", flush=True)
        except Skipped as reason:
            print(f"skipped: {block.name}: {reason}", flush=True)
        except (Failed, OSError, ValueError, subprocess.TimeoutExpired) as error:
            failed += 1
            print(f"FAILED {block.name}: {error}", flush=True)
    return passed, failed


def main():
    binary = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ANTIPHON_BIN", ROOT / "target/debug/antiphon"))
    binary = binary.resolve()
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    blocks = [block for document in documents for block in blocks_of(document)]
    with tempfile.TemporaryDirectory() as folder, StrictProvider() as provider:
        folder = Path(folder)
        # The blocks find the ledger and the token of the proxy.
        state = folder / "home" / "state"
        state.mkdir(parents=True)
        with antiphon(binary, UPSTREAMS, provider, state=state) as (base, admin):
            passed, failed = run_all(Sandbox(folder, binary, base, admin, provider), blocks)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
