#!/usr/bin/env python3
"""Drives each agent of docs/clients.md through Antiphon once, as the document says. By hand: it takes half an hour.

    python3 tests/sdk/agents_walk.py [BINARY] [NAME…]     default: $ANTIPHON_BIN, else target/debug/antiphon
    python3 tests/sdk/agents_walk.py codex qwen=0.15.10   only these programs, one in another version

Installs the documented versions below target/agents-walk (4 GB). Each turn gets a home of its own, invented keys and
logins, and a provider on this machine. The columns of the table:

    run      `antiphon run -- AGENT`. Agents that read files only must be told what to set.
    setting  the documented setting, with a proxy that runs already
    login    the same two with a forged login

A turn passes if its user sees the provider's words, if the proxy has counted what the provider got, and if the
credential arrived unchanged. The last line is `N passed, N failed, N skipped`; it exits with 1 if any failed.
"""

import os
import sys
import tempfile
from pathlib import Path

from install import TARGET
from running import antiphon
from walk_agents import AGENTS, COLUMNS
from walk_docs import Undocumented, documented_versions
from walk_install import NotInstalled, installed
from walk_provider import UPSTREAMS, Fence, WalkProvider
from walk_turn import Place


def walk(agent, place, proxy):
    """Plays the turns of an agent. Yields the column, the command and what is wrong."""
    try:
        for column, turn in agent.turns():
            yield column, turn.script.splitlines()[-1], place.play(turn, agent, proxy)
    except Undocumented as error:
        yield COLUMNS[1], "the document", str(error)


def main():
    arguments = sys.argv[1:]
    known = {agent.program for agent in AGENTS}
    binary = os.environ.get("ANTIPHON_BIN") or TARGET / "debug" / "antiphon"
    if arguments and arguments[0].partition("=")[0] not in known:
        binary = arguments.pop(0)
    wanted = {name: version for name, _, version in (argument.partition("=") for argument in arguments)}
    if unknown := wanted.keys() - known:
        sys.exit(f"no such agent: {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}")
    documented = documented_versions()
    rows, tally, skipped = [], [0, 0], []
    with WalkProvider() as provider, Fence() as fence, tempfile.TemporaryDirectory() as folder:
        # Under its own name, since the documented commands begin with it.
        programs = Path(folder) / "programs"
        programs.mkdir()
        (programs / "antiphon").symlink_to(Path(binary).resolve())
        place = Place(provider, fence, programs, Path(folder))
        with antiphon(Path(binary).resolve(), UPSTREAMS, provider, provider.login_upstreams) as proxy:
            for agent in AGENTS:
                if wanted and agent.program not in wanted:
                    continue
                version = wanted.get(agent.program) or documented.get(agent.name)
                if not version:
                    skipped.append(f"{agent.program}: docs/clients.md has no version")
                    continue
                try:
                    agent.folders = installed(agent.package, version, f"{agent.program}-{version}")
                except NotInstalled as reason:
                    skipped.append(f"{agent.program}: {reason}")
                    continue
                cells = dict.fromkeys(COLUMNS, "")
                for column, command, wrong in walk(agent, place, proxy):
                    tally[bool(wrong)] += 1
                    cells[column] = "FAILED" if wrong or cells[column] == "FAILED" else "ok"
                    label = f"{agent.name}: {command}"
                    print(f"FAILED {label}: {wrong}" if wrong else f"ok {label}", flush=True)
                rows.append((agent.name, version, *cells.values()))
    return report(rows, tally, skipped)


def report(rows, tally, skipped):
    """Prints the table and the last line. Returns the exit code."""
    table = [("agent", "version", *COLUMNS), *rows]
    widths = [max(map(len, column)) for column in zip(*table)]
    print()
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    reasons = f" ({'; '.join(skipped)})" if skipped else ""
    print(f"\n{tally[0]} passed, {tally[1]} failed, {len(skipped)} skipped{reasons}")
    return 1 if tally[1] else 0


if __name__ == "__main__":
    sys.exit(main())
