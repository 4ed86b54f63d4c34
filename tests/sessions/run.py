#!/usr/bin/env python3
"""`antiphon doctor` over damaged session files: found at its line, mended, judged, run again, and undone.

    python3 tests/sessions/run.py [PATH OF THE BINARY]     default: $ANTIPHON_BIN, else target/debug/antiphon
        --seed N|random     the seed of the damaged files, default 1
        --only WORD         cases whose name holds the word
        --stand-in [LIE]    the stand-in instead of a binary, which shows that the checks see what they must
        --keep FOLDER       leaves the files of the cases there

The last line is `N passed, N failed`, and it exits with 1 if any failed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from damage import READ_ONLY, cases, seed_of
from installs import TARGET
from judge import Mended, judge
from measuring import session_of
from story import FILES, SUB_ANSWER, TEXTS

HERE = Path(__file__).resolve().parent
SECONDS = 60
WRITTEN_NS = 1_790_000_000_123_456_789
# Words of the conversation, none of which may be printed.
CANARIES = [*TEXTS.values(), *(text.split()[1] for text in FILES.values()), SUB_ANSWER.split()[1], "filler"]


@dataclass
class Doctor:
    """The program, and the folders that it sees."""

    command: list
    home: Path
    printed: str = ""

    def run(self, *arguments):
        env = {name: os.environ[name] for name in ("PATH", "LANG", "SYSTEMROOT") if name in os.environ}
        env |= {"HOME": str(self.home), "XDG_STATE_HOME": str(self.home / "state")}
        command = [*self.command, "doctor", *map(str, arguments)]
        done = subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        self.printed += done.stdout + done.stderr
        return done

    def findings(self, file):
        """The exit code and the findings of a file, or the reason why there are none."""
        done = self.run("--output", "json", file)
        try:
            document = json.loads(done.stdout)
            row = document["files"][0]
            return done.returncode, row["findings"], row
        except (ValueError, LookupError, TypeError) as error:
            raise RuntimeError(f"no JSON of a file ({done.returncode}): {error}: {done.stderr[-200:]}") from error


def place_of(home, client, session):
    if client == "codex":
        return home / f".codex/sessions/2026/11/30/rollout-2026-11-30T12-00-00-{session}.jsonl"
    if client == "copilot":
        return home / f".copilot/session-state/{session}/events.jsonl"
    if client == "qwen-code":
        return home / f".qwen/projects/-home-user-work/chats/{session}.jsonl"
    return home / f".claude/projects/-home-user-work/{session}.jsonl"


def facts(file):
    stat = file.stat()
    return stat.st_mode, stat.st_mtime_ns, stat.st_ino


def found_wrong(expected, code, findings):
    """Returns the faults of the findings before a fix."""
    heavy = [finding for finding in findings if finding["severity"] != "note"]
    wrong = [] if code == int(bool(heavy)) else [f"exit code {code} with {len(heavy)} findings above a note"]
    if expected["code"] is None:
        return wrong + [f"a sound file has {finding['code']} at line {finding['line']}" for finding in heavy]
    mine = [finding for finding in findings if finding["code"] in (expected["code"], *expected["also"])]
    if not mine and not expected["may_be_silent"]:
        said = [(finding["code"], finding["line"]) for finding in findings]
        return [*wrong, f"{expected['code']} is not found: {said}"]
    places = {line for finding in mine for line in [finding["line"], *finding["lines"]]}
    if mine and not places & set(expected["lines"]):
        wrong.append(f"{expected['code']} is found at {sorted(places)}, not at {expected['lines']}")
    weights = {finding["severity"] for finding in mine}
    if mine and expected["severity"] not in (None, *weights):
        wrong.append(f"{expected['code']} is {sorted(weights)}, not {expected['severity']}")
    fixes = {finding["repair"] for finding in mine}
    if mine and not fixes & set(expected["fix"]):
        wrong.append(f"{expected['code']} has repair {sorted(fixes)}, not {expected['fix']}")
    return wrong


def check(doctor, expected, damaged, sound):
    """Returns the faults of the doctor's work on one case."""
    file = place_of(doctor.home, expected["client"], session_of(sound))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(damaged)
    file.chmod(0o640)
    os.utime(file, ns=(WRITTEN_NS, WRITTEN_NS))
    known = [facts(file)]
    if expected["code"] == "empty_file":
        return check_empty(doctor, file)
    code, findings, _ = doctor.findings(file)
    wrong = found_wrong(expected, code, findings)
    if file.read_bytes() != damaged:
        wrong.append("reading changed the file")
    fixed = doctor.run("--fix", file)
    mended = file.read_bytes()
    known.append(facts(file))
    remaining_code, remaining, _ = doctor.findings(file)
    heavy = [finding["code"] for finding in remaining if finding["severity"] != "note"]
    if expected["client"] in READ_ONLY:
        if fixed.returncode != 1 or "only read" not in fixed.stderr:
            wrong.append(f"--fix is not refused: {fixed.returncode}: {fixed.stderr[-300:]}")
    elif fixed.returncode != int(bool(heavy)):
        wrong.append(f"--fix exits with {fixed.returncode}, and {heavy} remain: {fixed.stderr[-300:]}")
    if "none" not in expected["fix"] and expected["code"] in [finding["code"] for finding in remaining]:
        wrong.append(f"{expected['code']} remains after --fix")
    if remaining_code != int(bool(heavy)):
        wrong.append(f"exit code {remaining_code} after --fix with {heavy}")
    doctor.run("--fix", file)
    again = file.read_bytes()
    known.append(facts(file))
    if mended != damaged:
        undone = doctor.run("--undo", file)
        if undone.returncode:
            wrong.append(f"--undo exits with {undone.returncode}: {undone.stderr[-300:]}")
    known.append(facts(file))
    life = Mended(damaged, mended, again, file.read_bytes(), known)
    return wrong + judge(expected, life) + told_words(doctor)


def check_empty(doctor, file):
    """A file without a record is never sound, and nothing is written into it."""
    done = doctor.run(file)
    fixed = doctor.run("--fix", file)
    wrong = [] if done.returncode in (1, 2) else [f"an empty file gives exit code {done.returncode}"]
    wrong += [] if fixed.returncode in (1, 2) else [f"--fix of an empty file gives exit code {fixed.returncode}"]
    return wrong + ([] if file.read_bytes() == b"" else ["an empty file was written"])


def told_words(doctor):
    return [f"the word {word!r} of the conversation is printed" for word in CANARIES if word in doctor.printed]


def outcome(command, home, case):
    """Returns the faults of a case, in sentences."""
    try:
        return check(Doctor(command, home), *case)
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        return [str(error)]


def arguments_of():
    parser = argparse.ArgumentParser(description="Runs antiphon doctor over damaged session files.")
    parser.add_argument("binary", nargs="?", type=Path)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", default="")
    parser.add_argument("--stand-in", nargs="?", const="honest", metavar="LIE")
    parser.add_argument("--keep", type=Path)
    return parser.parse_args()


def main():
    arguments = arguments_of()
    seed = seed_of(arguments.seed)
    binary = arguments.binary or Path(os.environ.get("ANTIPHON_BIN") or TARGET / "debug" / "antiphon")
    command = [str(binary.resolve())]
    if arguments.stand_in:
        command = [sys.executable, str(HERE / "stand_in.py"), str(seed), arguments.stand_in]
    elif not binary.exists():
        print(f"no binary at {binary}: cargo build, or name another")
        return 1
    print(f"seed {seed}")
    tally = [0, 0]
    with tempfile.TemporaryDirectory() as temporary:
        top = arguments.keep or Path(temporary)
        for case in cases(seed, lambda name: arguments.only in name):
            name = case[0]["case"]
            wrong = outcome(command, top / name, case)
            tally[bool(wrong)] += 1
            print(f"FAILED {name}: {'; '.join(wrong)}" if wrong else f"ok {name}", flush=True)
    print(f"{tally[0]} passed, {tally[1]} failed")
    return int(tally[1] > 0)


if __name__ == "__main__":
    sys.exit(main())
