#!/usr/bin/env python3
"""`/ledger/v1` of a running Antiphon against its OpenAPI document: by hand-written requests, then by schemathesis.

    python3 tests/admin/ledger.py [PATH OF THE BINARY]      default: $ANTIPHON_BIN, else target/debug/antiphon

Installs what it needs of PyPI below target/. `SEED=` walks elsewhere, `EXAMPLES=` further. It exits with 1 if anything is
found.
"""

import hashlib
import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "sdk")]

from install import TARGET, python_with  # noqa: E402
from named_call_provider import KEY, ask, provider  # noqa: E402
from running import antiphon  # noqa: E402

TOKEN = "token-of-the-runner"
PERSON = "token-of-ann"
SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
SERVICE = f"""
    [services.runner]
    token = "sha256:{hashlib.sha256(TOKEN.encode()).hexdigest()}"
    secret = "{SECRET}"
    principals = ["*"]
    tools = ["*"]
    on_behalf = true
    [ledger]
    task_page = true
    [client_tokens]
    ann = {{ token = "sha256:{hashlib.sha256(PERSON.encode()).hexdigest()}", personal = true }}
    [tools.render]
    tier = "durable"
    intent = "user"
"""
# The first is the example of the document, the second a reusable id.
CALLS = ["toolu_01A09q90qw90lq917835lq9", "call_0", "toolu_01B19r80rw80mr826744mr8", "toolu_01C29s70sw70ns735653ns7"]
# The one that never ends is read by the story.
ENDLESS = "/ledger/v1/feed"


def schemathesis(python, base, tag, *more):
    """Whether it finds nothing; what it says is printed."""
    command = [
        str(python.parent / "schemathesis"), "run", f"{base}/ledger/v1/openapi.json", "--include-tag", tag,
        # A missing credential is a 404 by design. The runs without one show that nothing is answered.
        "--checks", "all", "--exclude-checks", ",".join(["missing_required_header", *(["ignored_auth"] if more else [])]),
        "--phases", "examples,coverage,fuzzing", "--exclude-path", ENDLESS,
        "--max-examples", os.environ.get("EXAMPLES", "40"), "--seed", os.environ.get("SEED", "24"),
        "--continue-on-failure", "--no-color", "--warnings", "off", "--suppress-health-check", "all",
        "--request-timeout", "10", *more,
    ]  # fmt: skip
    # The folder of the hooks is not that of the run, which keeps its own files.
    given = {"SCHEMATHESIS_HOOKS": "ledger_hooks", "PYTHONPATH": str(HERE), "LEDGER_CALLS": " ".join(CALLS), "LEDGER_TAG": tag}
    return subprocess.run(command, cwd=TARGET, env=os.environ | given, check=False).returncode == 0


def story(python, base):
    """Whether the hand-written requests get the answers that are due."""
    command = [str(python), str(HERE / "ledger_story.py"), base]
    given = {"RUNNER_TOKEN": TOKEN, "RUNNER_SECRET": SECRET, "API_KEY": KEY}
    return subprocess.run(command, env=os.environ | given, check=False).returncode == 0


def link(base):
    """The secret of a link to the task page."""
    request = urllib.request.Request(f"{base}/ledger/v1/tasks/links", b"{}", {"x-antiphon-client-token": PERSON}, method="POST")
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)["url"].partition("#")[2]


def main():
    given = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ANTIPHON_BIN")
    binary = Path(given or TARGET / "debug" / "antiphon").resolve()
    python = python_with(HERE / "requirements.txt", "admin-venv", "schemathesis")
    if not python:
        return 0
    sys.stdout.flush()
    with provider() as upstream, antiphon(binary, ["anthropic"], upstream, SERVICE) as (base, _):
        good = story(python, base)
        for call in CALLS:
            ask(base, call)
        good &= schemathesis(python, base, "document")
        for tag, credential in [
            ("services", f"Authorization:Bearer {TOKEN}"),
            ("intents", f"Authorization:Bearer {TOKEN}"),
            ("callers", f"x-api-key:{KEY}"),
            ("tasks", f"x-antiphon-client-token:{PERSON}"),
            ("tasks", f"Authorization:Bearer {link(base)}"),
        ]:
            good &= schemathesis(python, base, tag)
            good &= schemathesis(python, base, tag, "-H", credential)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
