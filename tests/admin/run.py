#!/usr/bin/env python3
"""schemathesis over the OpenAPI document of a running Antiphon, without a token and with one.

    python3 tests/admin/run.py [PATH OF THE BINARY]      default: $ANTIPHON_BIN, else target/debug/antiphon

Installs what it needs of PyPI below target/. `SEED=` walks elsewhere, `EXAMPLES=` further. It exits with 1 if anything is
found.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "sdk"), str(HERE.parent / "deploy")]

from install import TARGET, python_with  # noqa: E402
from provider import Provider  # noqa: E402
from running import antiphon  # noqa: E402
from traffic import config, send  # noqa: E402

TOKEN = "token-of-the-operator"
# The one that never ends is tried by the Rust tests and by the browser.
ENDLESS = "/admin/v1/events"


def schemathesis(python, admin, *more):
    """Whether it finds nothing; what it says is printed."""
    command = [
        str(python.parent / "schemathesis"), "run", f"{admin}/admin/v1/openapi.json",
        "--checks", "all", "--phases", "examples,coverage,fuzzing", "--exclude-path", ENDLESS,
        "--max-examples", os.environ.get("EXAMPLES", "40"), "--seed", os.environ.get("SEED", "24"),
        "--continue-on-failure", "--no-color", "--warnings", "off", "--suppress-health-check", "all",
        "--request-timeout", "10", *more,
    ]  # fmt: skip
    return subprocess.run(command, cwd=TARGET, check=False).returncode == 0


def main():
    given = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ANTIPHON_BIN")
    binary = Path(given or TARGET / "debug" / "antiphon").resolve()
    python = python_with(HERE / "requirements.txt", "admin-venv", "schemathesis")
    if not python:
        return 0
    sys.stdout.flush()
    good = True
    hashed = hashlib.sha256(TOKEN.encode()).hexdigest()
    for token, more in [("", []), (f'[server]\nadmin_token = "sha256:{hashed}"\n', ["-H", f"Authorization:Bearer {TOKEN}"])]:
        with Provider() as provider, antiphon(binary, ["anthropic"], provider, token + config(provider)) as (data, admin):
            # So that there is something to see.
            list(send(data))
            good &= schemathesis(python, admin, *more)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
