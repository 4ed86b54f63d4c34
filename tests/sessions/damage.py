#!/usr/bin/env python3
"""Writes damaged session files, made of the samples, with what a doctor must say and do about each.

    python3 tests/sessions/damage.py FOLDER [--seed N|random]      default: seed 1

Writes FOLDER/CASE.jsonl, FOLDER/CASE.sound (the sample) and FOLDER/expected.json. The same seed gives the same bytes.
"""

import argparse
import hashlib
import json
import random
import secrets
from pathlib import Path

from damages import ROWS
from log_lines import Lines
from measuring import story_of

# Clients whose sessions are only read.
READ_ONLY = ("copilot", "qwen-code")
SAMPLES = Path(__file__).resolve().parent / "samples"


def samples(client=None):
    """Client, version and bytes of each sample of a session."""
    for file in sorted(SAMPLES.glob("*.jsonl")):
        name, _, version = file.stem.rpartition("-")
        if not version.endswith(".subagent") and client in (None, name):
            yield name, version, file.read_bytes()


def cases(seed, wanted=lambda name: True):
    """Each damage of each sample: what is expected, and the damaged bytes."""
    for client, version, data in samples():
        for row in ROWS:
            is_old = tuple(map(int, version.split("."))) < row.get("since", (0,))
            if client in row["clients"] and not is_old and wanted(f"{client}-{version}-{row['name']}"):
                yield case(client, version, data, row, seed)


def case(client, version, data, row, seed):
    # A damage keeps its bytes when rows are added.
    key = f"{seed} {client} {version} {row['name']}"
    rng = random.Random(int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big"))
    log = Lines(client, data)
    said = row["make"](log, rng)
    said = said if isinstance(said, dict) else {"line": said}
    story = story_of(client, data)
    lost = said.get("lost", [])
    gone = [*story["texts"], *story["results"]] if lost in ("all", "any") else lost
    expected = {
        "case": f"{client}-{version}-{row['name']}",
        "client": client,
        "version": version,
        "damage": row["name"],
        "code": row["code"],
        # Other codes that say the same.
        "also": row.get("also", []),
        "lines": said["line"] if isinstance(said["line"], list) else [said["line"]],
        "fix": ["none"] if client in READ_ONLY else row["fix"] if isinstance(row["fix"], list) else [row["fix"]],
        # None if versions, clients or places differ in it.
        "severity": None if client in READ_ONLY else row.get("severity"),
        "may_be_silent": row.get("may_be_silent", False),
        # The parts of the story that a mended file gives back: texts by their word, results by call and word.
        "texts": {name: word for name, word in story["texts"].items() if name not in gone},
        "results": {name: pair for name, pair in story["results"].items() if name not in gone},
        "words": said.get("words", []),
        "gone": gone,
        "sha256": hashlib.sha256(log.data()).hexdigest(),
    }
    return expected, log.data(), data


def seed_of(text):
    return secrets.randbelow(1 << 32) if text == "random" else int(text)


def write(folder, seed):
    """Writes the files of a seed: what is expected of each."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for expected, damaged, sound in cases(seed):
        (folder / f"{expected['case']}.jsonl").write_bytes(damaged)
        (folder / f"{expected['case']}.sound").write_bytes(sound)
        rows.append(expected)
    text = json.dumps({"seed": seed, "cases": rows}, indent=1)
    (folder / "expected.json").write_text(text + "\n", "utf-8")
    return rows


def main():
    parser = argparse.ArgumentParser(description="Writes damaged session files.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", default="1", help="a number, or random")
    arguments = parser.parse_args()
    seed = seed_of(arguments.seed)
    rows = write(arguments.folder, seed)
    print(f"seed {seed}: {len(rows)} files in {arguments.folder}")


if __name__ == "__main__":
    main()
