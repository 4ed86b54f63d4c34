#!/usr/bin/env python3
"""Shows that the checks of this folder see what they must: an honest stand-in passes, and each lie of it is found.

    python3 tests/sessions/self_check.py      needs neither a binary nor a client; the last line is `N passed, N failed`
"""

import sys
import tempfile
from pathlib import Path

from damage import cases
from judge import Mended, judge
from run import HERE, outcome
from stand_in import LIES, mend

SEEDS = range(1, 6)
# Cases in which every lie can show: one that is mended in place, and one to which a record is appended.
CASES = ("codex-0.171.0-nul_before_record", "claude-code-2.1.42-open_inside")
# Damages that are mended to the bytes of the sample: there the sample is no lie.
SAME_AS_SOUND = ("invalid_utf8", "raw_newline", "lost_parent", "uuid_twice")


def check_judge():
    """The judge alone, over many seeds: good work, no work, and the sample in place of the work."""
    good, idle, swapped = [], [], []
    for seed in SEEDS:
        for expected, damaged, sound in cases(seed):
            name = f"{expected['case']} of seed {seed}"
            mended = mend(expected, damaged)
            good += [f"{name}: {why}" for why in judge(expected, life(damaged, mended))]
            if mended == damaged:
                continue
            idle += [] if judge(expected, life(damaged, damaged)) else [name]
            if expected["damage"] not in SAME_AS_SOUND and sound != mended:
                swapped += [] if judge(expected, life(damaged, sound)) else [name]
    yield "the judge accepts what is mended well", "; ".join(good[:3])
    yield "the judge sees that nothing was mended", "; ".join(idle[:3])
    yield "the judge sees that other bytes were written", "; ".join(swapped[:3])


def life(damaged, mended):
    return Mended(damaged, mended, mended, damaged, [1])


def check_runs(top):
    """The whole run, with an honest stand-in and with each lie."""
    for lie in ["honest", *LIES]:
        command = [sys.executable, str(HERE / "stand_in.py"), "1", lie]
        wrong = []
        for case in cases(1, lambda name: name in CASES):
            wrong += outcome(command, top / lie / case[0]["case"], case)
        if lie == "honest":
            yield "an honest stand-in passes", "; ".join(wrong)
        else:
            yield f"a stand-in that {LIES[lie]} is found", "" if wrong else "it is not"


def check_seeds():
    """The same seed gives the same bytes, and another one gives others."""
    first, same, other = ([row["sha256"] for row, _, _ in cases(seed)] for seed in (7, 7, 8))
    yield "a seed gives the same files", "" if first == same else "it does not"
    yield "another seed gives others", "" if first != other else "it does not"


def main():
    tally = [0, 0]
    with tempfile.TemporaryDirectory() as top:
        for part in (check_seeds(), check_judge(), check_runs(Path(top))):
            for name, wrong in part:
                tally[bool(wrong)] += 1
                print(f"FAILED {name}: {wrong}" if wrong else f"ok {name}", flush=True)
    print(f"{tally[0]} passed, {tally[1]} failed")
    return int(tally[1] > 0)


if __name__ == "__main__":
    sys.exit(main())
