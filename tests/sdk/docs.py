#!/usr/bin/env python3
"""The snippets of docs/late-results.md and docs/late-results-frameworks.md against a running Antiphon.

    python3 tests/sdk/docs.py [PATH OF THE BINARY]     default: $ANTIPHON_BIN, else target/debug/antiphon

Runs every code block that one of these comments marks, with a key and calls of its own:

    <!-- run: sh|python|node -->     posts or reads one result
    <!-- service: python -->         the service of a slow tool, which the agents use
    <!-- agent: python|node -->      an agent with that tool: the result must reach the provider

Installs the SDKs below target/: sdk-frameworks (140 MB), sdk-node, and sdk-node-ai7, which needs Node 22. The last line
is `N passed, N failed`; it exits with 1 if any failed. Blocks whose program or SDK cannot be installed are skipped aloud.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from calling_provider import CallingProvider, order
from doc_agents import check_agent
from doc_service import check_service
from install import HERE, node_sdks, node_with, python_with
from programs import SECONDS, Failed
from running import antiphon

ROOT = HERE.parent.parent
BLOCK = re.compile(r"<!-- (run|service|agent): (\w+) -->\n```\w+\n(.*?)```", re.S)
NODE = ["node", "--input-type=module", "-e"]
COMMANDS = {"sh": ["sh", "-e", "-c"], "python": [sys.executable, "-c"], "node": NODE}
KEY = "sk-docs"
FRAMEWORKS = "late-results-frameworks.md"


def blocks_of(document, kind):
    """Returns the blocks of a document that have this mark: (name, language, code)."""
    text = (ROOT / "docs" / document).read_text()
    found = [
        (f"{document}:{text.count(chr(10), 0, block.start()) + 1} ({kind}, {block[2]})", block[2], block[3])
        for block in BLOCK.finditer(text)
        if block[1] == kind
    ]
    assert found, f"docs/{document} has no block with the mark {kind}"
    return found


def check_run(command, code, base, admin, token):
    """Runs a block with an open call of its own."""
    call, owner = order(base, KEY)
    given = {"ANTIPHON": base, "ADMIN": admin, "API_KEY": KEY}
    given |= {"CALL_ID": call, "OWNER": owner, "RUNNER_TOKEN": token}
    done = subprocess.run(
        [*command, code], text=True, capture_output=True, env=os.environ | given, timeout=SECONDS, check=False
    )
    is_good = done.returncode == 0 and '"error"' not in done.stdout
    if not (is_good and any(word in done.stdout for word in ("settled", owner, '"reason"'))):
        raise Failed(done.stdout + done.stderr)


def checks(proxy, admin):
    """Yields each block's name and its check."""
    base, token, _ = proxy
    for name, language, code in blocks_of("late-results.md", "run"):
        command = COMMANDS[language]
        if not shutil.which(command[0]):
            print(f"skipped: {name}: {command[0]} is not installed")
            continue
        yield name, lambda command=command, code=code: check_run(command, code, base, admin, token)

    [(name, _, service_code)] = blocks_of(FRAMEWORKS, "service")
    yield name, lambda: check_service(service_code)
    for number, (name, command, cwd, code) in enumerate(agents()):
        agent = (command, code, cwd)
        yield name, lambda agent=agent, number=number: check_agent(*agent, service_code, proxy, number)


def agents():
    """Yields the agents of the document with every SDK that they are for: (name, command, folder, code)."""
    python = python_with(HERE / "frameworks.txt", "sdk-frameworks", "the frameworks for Python")
    node, ai7 = node_sdks(), node_with(HERE / "node-ai7", "sdk-node-ai7", "AI SDK 7")
    for name, language, code in blocks_of(FRAMEWORKS, "agent"):
        if language == "python":
            runs = [(name, python and [str(python), "-c"], None)]
        elif 'from "ai"' in code:
            runs = [(f"{name} with AI SDK 6", node and NODE, node), (f"{name} with AI SDK 7", ai7 and NODE, ai7)]
        else:
            runs = [(name, node and NODE, node)]
        for title, command, folder in runs:
            if command:
                yield title, command, folder, code
            else:
                print(f"skipped: {title}: it is not installed")


def main():
    binary = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ANTIPHON_BIN", ROOT / "target/debug/antiphon"))
    made = subprocess.run([binary, "config", "token", "runner"], text=True, capture_output=True, check=True)
    token, digest = made.stdout.strip(), re.search(r'"(sha256:[^"]+)"', made.stderr).group(1)
    config = f'[services.runner]\ntoken = "{digest}"\nprincipals = ["*"]\ntools = ["*"]\n'
    # Blocks call `antiphon` by its name.
    os.environ["PATH"] = f"{binary.resolve().parent}{os.pathsep}{os.environ['PATH']}"
    failed = passed = 0
    with CallingProvider() as provider, antiphon(binary, ["anthropic", "openai"], provider, config) as (base, admin):
        for name, check in checks((base, token, provider), admin):
            try:
                check()
                passed += 1
                print(f"ok {name}", flush=True)
            except (Failed, OSError, subprocess.TimeoutExpired) as error:
                failed += 1
                print(f"FAILED {name}: {error}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
