#!/usr/bin/env python3
"""Prints where the processor seconds of a build go: by kind, and by package.

    python3 tests/build/seconds.py [CARGO ARGUMENTS]     default: build --release --locked

The build starts from nothing, in a temporary target folder, or in $CARGO_TARGET_DIR, which should not exist then. A
wrapper measures each call of the Rust and of the C compiler: the user and system seconds of it and its children. What is
left of the whole is cargo itself and the build scripts at work, without the C code that they compile. The seconds of two
builds compare if both ran in the same hour, with nothing else on the machine.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

SHOWN = 30
# Runs a compiler and notes what it took. A shell, because there are a thousand calls, and Python takes 40 ms to start. The
# second line of `times` is about the children.
WRAPPER = """#!/bin/sh
{command} "$@"
status=$?
kind= crate= opt=0 before=
for argument; do
  case $before in
    --crate-name) crate=$argument ;;
    --crate-type) kind=$argument ;;
  esac
  case $argument in opt-level=*) opt=${{argument#*=}} ;; esac
  before=$argument
done
{{
  echo "{tool}|$CARGO_PKG_NAME|$CARGO_PKG_VERSION|$crate|$kind|$opt"
  times
}} >"{folder}/$$-$(date +%N)"
exit $status
"""


def seconds(text):
    """Reads `1m2.5s`."""
    minutes, rest = text.split("m")
    return int(minutes) * 60 + float(rest.rstrip("s"))


def read_calls(folder):
    calls = []
    for file in folder.iterdir():
        first, _, children = file.read_text(encoding="utf-8").splitlines()
        call = dict(zip(("tool", "package", "version", "crate", "kind", "opt"), first.split("|"), strict=True))
        call["user"], call["system"] = (seconds(part) for part in children.split())
        # Cargo also asks the compiler for its version.
        if call["tool"] == "c" or call["crate"]:
            calls.append(call)
    return calls


def write_wrapper(work, tool, name, command):
    """Writes a program that measures `command`. Cargo and build scripts expect one word."""
    path = work / name
    path.write_text(WRAPPER.format(command=command, tool=tool, folder=work / "calls"))
    path.chmod(0o755)
    return str(path)


def build(arguments, work):
    """Runs the build. Returns its calls, its processor seconds, and those on the clock."""
    (work / "calls").mkdir()
    env = {**os.environ, "RUSTC_WRAPPER": write_wrapper(work, "rustc", "rustc-wrapper", "")}
    env.setdefault("CARGO_TARGET_DIR", str(work / "target"))
    for name, usual in (("CC", "cc"), ("CXX", "c++")):
        env[name] = write_wrapper(work, "c", usual, os.environ.get(name, usual))
    began = time.monotonic()
    subprocess.run(["cargo", *arguments], env=env, check=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return read_calls(work / "calls"), used.ru_utime + used.ru_stime, time.monotonic() - began


def label_of(call):
    if call["tool"] == "c":
        return "C code", call["package"] or "?"
    if call["crate"].startswith("build_script"):
        return "build script", call["package"]
    kind = {"proc-macro": "macro", "bin": "program"}.get(call["kind"], "library")
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
    main()
