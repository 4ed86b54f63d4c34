#!/usr/bin/env python3
"""Resumes session files with the client that wrote them: sound, damaged, and mended by `antiphon doctor`.

    python3 tests/sessions/clients.py [PATH OF THE BINARY]     default: $ANTIPHON_BIN, else target/debug/antiphon
        --only WORD      cases whose name holds the word
        --stand-in       the stand-in mends instead of a binary
        --unmended       only what each client leaves out of a damaged file, as a table

One damage for each version of a client; `ALL=1` takes every one, and prints a table. A mended file must be answered
without a refusal, and its request must hold every text and result that `expected.json` says returns, and the constant
result at a call that had none. What a version leaves out of its own sound file is not asked of it. Sessions that are
only read are not resumed, since nothing is mended. Clients that cannot be installed are skipped aloud. The last line is
`N passed, N failed`, and it exits with 1 if any failed.
"""

import argparse
import functools
import os
import sys
import tempfile
from pathlib import Path

from damage import READ_ONLY, cases, seed_of
from installs import TARGET, program
from measuring import resumed, session_of, story_of
from run import Doctor, place_of
from stand_in import mend

# The damage that is tried by default: every version loses a result to it.
USUAL = "nul_before_record"
CONSTANT = "[antiphon: "


def mended_by(binary, expected, damaged, sound):
    """The bytes of a file after `--fix`."""
    if not binary:
        return mend(expected, damaged)
    with tempfile.TemporaryDirectory() as home:
        file = place_of(Path(home), expected["client"], session_of(sound))
        file.parent.mkdir(parents=True)
        file.write_bytes(damaged)
        done = Doctor([str(binary)], Path(home)).run("--fix", file)
        if done.returncode not in (0, 1):
            raise RuntimeError(f"--fix exits with {done.returncode}: {done.stderr[-300:]}")
        return file.read_bytes()


@functools.cache
def own_losses(client, version, sound):
    """What a version leaves out of a sound file of its own, such as results on side branches."""
    outcome = resumed(client, program(client, version), sound, session_of(sound))
    if outcome.dead:
        raise RuntimeError(f"a sound file is not resumed: {outcome.dead}")
    return frozenset(outcome.missing(story_of(client, sound)))


def asked_back(expected, losses):
    """The parts of the story that a request for a mended file must hold."""
    parts = {"texts": expected["texts"], "results": expected["results"]}
    return {kind: {name: part for name, part in known.items() if name not in losses} for kind, known in parts.items()}


def resumption(expected, data, sound):
    return resumed(expected["client"], program(expected["client"], expected["version"]), data, session_of(sound))


def resumed_badly(expected, mended, sound):
    """What is wrong with the client's next request, in sentences."""
    losses = own_losses(expected["client"], expected["version"], sound)
    outcome = resumption(expected, mended, sound)
    wrong = [outcome.dead] if outcome.dead else []
    wrong += [f"{name} is not sent" for name in outcome.missing(asked_back(expected, losses))]
    everything = str(outcome.requests[-1]) if outcome.requests else ""
    wrong += [f"the word of an orphan is not sent: {word}" for word in expected["words"] if word not in everything]
    if expected["code"] == "unanswered" and "none" not in expected["fix"] and expected["damage"] != "open_at_end":
        # One at the end may be answered by the client or dropped with its call.
        if not any(CONSTANT in result for result in outcome.results.values()):
            wrong.append("the constant result is not sent")
    return wrong


def losses_of(expected, damaged, sound):
    """What a client leaves out of a damaged file, of what its bytes still hold."""
    own = own_losses(expected["client"], expected["version"], sound)
    outcome = resumption(expected, damaged, sound)
    return outcome.dead, outcome.missing(asked_back(expected, own))


def is_mended(expected):
    return bool(expected["code"]) and expected["fix"] != ["none"]


def arguments_of():
    parser = argparse.ArgumentParser(description="Resumes session files with real clients.")
    parser.add_argument("binary", nargs="?", type=Path)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", default="")
    parser.add_argument("--stand-in", action="store_true")
    parser.add_argument("--unmended", action="store_true")
    return parser.parse_args()


def checks(arguments, binary):
    """Each case with the damage seen, and what is wrong with the mended file."""
    every = os.environ.get("ALL") or arguments.unmended
    for expected, damaged, sound in cases(seed_of(arguments.seed), lambda name: arguments.only in name):
        if not every and expected["damage"] != USUAL or expected["code"] == "empty_file":
            continue
        if expected["client"] in READ_ONLY:
            continue
        if not program(expected["client"], expected["version"]):
            continue
        try:
            dead, lost = losses_of(expected, damaged, sound)
            wrong = []
            if expected["damage"] == USUAL and not lost:
                wrong = ["the damage is not seen: the request of the damaged file is whole"]
            if is_mended(expected) and not arguments.unmended:
                mended = mended_by(binary, expected, damaged, sound)
                if mended != damaged:
                    wrong += resumed_badly(expected, mended, sound)
                elif "none" not in expected["fix"]:
                    wrong.append("nothing was mended")
        except RuntimeError as error:
            dead, lost, wrong = "", [], [str(error)]
        yield expected, dead, lost, wrong


def main():
    arguments = arguments_of()
    binary = arguments.binary or Path(os.environ.get("ANTIPHON_BIN") or TARGET / "debug" / "antiphon")
    binary = None if arguments.stand_in or arguments.unmended else binary.resolve()
    if binary and not binary.exists():
        print(f"no binary at {binary}: cargo build, or name another")
        return 1
    tally, table = [0, 0], []
    for expected, dead, lost, wrong in checks(arguments, binary):
        name = expected["case"]
        tally[bool(wrong)] += 1
        print(f"FAILED {name}: {'; '.join(wrong)}" if wrong else f"ok {name}", flush=True)
        unmended = dead.split(":")[0] or (f"−{len(lost)}: {', '.join(lost)}" if lost else "whole")
        after = "FAILED" if wrong else "whole" if is_mended(expected) and not arguments.unmended else ""
        table.append(f"| {expected['damage']} | {expected['client']} {expected['version']} | {unmended} | {after} |")
    if len(table) > 5:
        print("\n| damage | client | unmended | mended |\n|---|---|---|---|", *table, sep="\n")
    print(f"{tally[0]} passed, {tally[1]} failed")
    return int(tally[1] > 0)


if __name__ == "__main__":
    sys.exit(main())
