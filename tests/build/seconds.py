#!/usr/bin/env python3
"""Prints where the processor seconds of a build go: by kind, and by package.

    python3 tests/build/seconds.py [CARGO ARGUMENTS]     default: build --release --locked

The build starts from nothing, in a temporary target folder, or in $CARGO_TARGET_DIR, which should not exist then. A
wrapper measures each call of the Rust and of the C compiler: the user and system seconds of it and its children. What is
left of the whole is cargo itself and the build scripts at work, without the C code that they compile. The seconds of two
builds compare if both ran in the same hour, with nothing else on the machine.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

# The file to which the wrappers append a line for each call.
LOG = "BUILD_SECONDS_LOG"
SHOWN = 30


def wrap(tool, command):
    """Runs a compiler and appends what it took."""
    # Cargo passes its jobserver as open files.
    status = subprocess.call(command, close_fds=False)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    line = {
        "tool": tool,
        "package": os.environ.get("CARGO_PKG_NAME", ""),
        "version": os.environ.get("CARGO_PKG_VERSION", ""),
        "user": used.ru_utime,
        "system": used.ru_stime,
    }
    if tool == "rustc":
        line["crate"] = value_of(command, "--crate-name")
        line["kind"] = "macro" if "proc-macro" in command else value_of(command, "--crate-type")
        line["opt"] = next((part.split("=")[1] for part in command if part.startswith("opt-level=")), "0")
    with open(os.environ[LOG], "a", encoding="utf-8") as log:
        log.write(json.dumps(line) + "\n")
    return status


def value_of(command, option):
    return command[command.index(option) + 1] if option in command else ""


def wrapper(folder, name, command):
    """Writes a program that measures `command`. Cargo and build scripts expect one word."""
    path = folder / name
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).resolve()}" --wrap {command} "$@"\n')
    path.chmod(0o755)
    return str(path)


def build(arguments, folder):
    """Runs the build. Returns its calls, its processor seconds, and those on the clock."""
    log = folder / "calls"
    env = {**os.environ, LOG: str(log), "RUSTC_WRAPPER": wrapper(folder, "rustc", "rustc")}
    env.setdefault("CARGO_TARGET_DIR", str(folder / "target"))
    for name, usual in (("CC", "cc"), ("CXX", "c++")):
        env[name] = wrapper(folder, usual, f"c {os.environ.get(name, usual)}")
    began = time.monotonic()
    subprocess.run(["cargo", *arguments], env=env, check=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    calls = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return calls, used.ru_utime + used.ru_stime, time.monotonic() - began


def label_of(call):
    if call["tool"] == "c":
        return "C code", call["package"] or "?"
    if call["crate"].startswith("build_script"):
        return "build script", call["package"]
    kind = {"macro": "macro", "bin": "program"}.get(call["kind"], "library")
    return kind, f"{call['package']} {call['version']} (opt-level {call['opt']})"


def main():
    arguments = sys.argv[1:] or ["build", "--release", "--locked"]
    with tempfile.TemporaryDirectory(prefix="build-seconds-") as folder:
        calls, total, clock = build(arguments, Path(folder))
    by_kind, by_name = defaultdict(float), defaultdict(lambda: [0.0, 0.0])
    packages = set()
    for call in calls:
        kind, name = label_of(call)
        by_kind[kind] += call["user"] + call["system"]
        by_name[kind, name][0] += call["user"]
        by_name[kind, name][1] += call["system"]
        if kind in ("library", "macro", "program"):
            packages.add((call["package"], call["version"]))
    print(f"\n{total:.0f} processor seconds, {clock:.0f} s on the clock, {len(packages)} packages\n")
    by_kind["cargo and build scripts at work"] = total - sum(by_kind.values())
    for kind, seconds in sorted(by_kind.items(), key=lambda item: -item[1]):
        print(f"{seconds:8.1f}  {kind}")
    print(f"\n    user  system  the {SHOWN} that take the most")
    most = sorted(by_name.items(), key=lambda item: -sum(item[1]))[:SHOWN]
    for (kind, name), (user, system) in most:
        print(f"{user:8.1f} {system:7.1f}  {kind}: {name}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--wrap"]:
        sys.exit(wrap(sys.argv[2], sys.argv[3:]))
    main()
