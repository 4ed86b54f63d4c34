#!/usr/bin/env python3
"""Mistral's own validator over the recorded cases: two versions of mistral-common, below target/.

    python3 tests/referees/run.py

The newest version judges every repaired case of `openai-chat-mistral`, and every case with malformed calls. Version
1.5.4 refuses a user's message after a tool message, as servers with Mistral's templates still do: it judges the cases
that a bridge repairs, before and after. The last line is `N passed, N failed`; it exits with 1 if any failed. It exits
with 0 and a line `skipped: …` if mistral-common cannot be installed.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "sdk"))

from install import python_with  # noqa: E402

CASES = HERE.parent / "cases"
NEWEST, STRICT = "1.13.1", "1.5.4"


def interpreter(version):
    """The interpreter of an environment with this version; None if it cannot be installed."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "requirements.txt"
        wanted.write_text(f"mistral-common=={version}\n")
        return python_with(wanted, f"mistral-{version}", f"mistral-common {version}")


def verdicts(python, bodies):
    """The verdict of each body."""
    lines = "".join(json.dumps(body["messages"]) + "\n" for body in bodies)
    judge = [str(python), str(HERE / "judge_mistral.py")]
    done = subprocess.run(judge, input=lines, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def body(folder, name):
    return json.loads((folder / name).read_text())


def sent(folder):
    """The body that the provider gets."""
    return body(folder, "repaired.json" if (folder / "repaired.json").exists() else "request.json")


def learned(folder):
    rules = folder / "learned.txt"
    return rules.read_text().split() if rules.exists() else []


def rows(newest, strict):
    """Name, verdict, and whether the body should be accepted."""
    mistral = sorted((CASES / "openai-chat-mistral").iterdir())
    compatible = sorted((CASES / "openai-chat-compatible").iterdir())
    # A name that `tools` declares is the provider's to judge, so it stays.
    malformed = [folder for folder in compatible if "strict_calls" in learned(folder) and "declare" not in folder.name]
    for folder, verdict in zip(mistral, verdicts(newest, map(sent, mistral)), strict=True):
        # A deferred result is left out until the user speaks, so such a body ends with an assistant.
        yield folder.name, verdict, True
    for folder, verdict in zip(malformed, verdicts(newest, map(sent, malformed)), strict=True):
        yield folder.name, verdict, True
    bridged = [folder for folder in compatible if "bridged" in learned(folder)]
    for folder, verdict in zip(bridged, verdicts(strict, map(sent, bridged)), strict=True):
        yield f"{folder.name}, version {STRICT}", verdict, True
    before = [body(folder, "request.json") for folder in bridged]
    for folder, verdict in zip(bridged, verdicts(strict, before), strict=True):
        yield f"{folder.name} before repair, version {STRICT}", verdict, False


def main():
    newest, strict = interpreter(NEWEST), interpreter(STRICT)
    if not newest or not strict:
        return 0
    passed = failed = 0
    for name, verdict, accepted in rows(newest, strict):
        if (verdict == "ok") == accepted:
            passed += 1
        else:
            failed += 1
            print(f"FAILED {name}: {verdict}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
