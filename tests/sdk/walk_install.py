"""Installs one agent in one version, below the target folder, as its users do."""

import json
import os
import re
import shutil
import subprocess

from install import TARGET, complaint, python_with

HOME = TARGET / "agents-walk"
# Installed beside the agents that need a newer one than this machine has.
NEWER_NODE = "24"


class NotInstalled(Exception):
    """Why an agent cannot be installed here."""


def installed(package, version, name):
    """The folders of the programs of a package of npm, or of PyPI with `pip:` in front."""
    kind, _, package = package.rpartition(":")
    return from_pypi(package, version, name) if kind else from_npm(package, version, name)


def from_pypi(package, version, name):
    HOME.mkdir(parents=True, exist_ok=True)
    requirements = HOME / f"{name}.txt"
    requirements.write_text(f"{package}=={version}\n")
    python = python_with(requirements, f"agents-walk/{name}", f"{package} {version}")
    if not python:
        raise NotInstalled(f"pip cannot install {package} {version}")
    return [python.parent]


def from_npm(package, version, name):
    npm, node = shutil.which("npm"), shutil.which("node")
    if not npm or not node:
        raise NotInstalled("node or npm is not installed")
    home = HOME / name
    programs = add_package(npm, home, package, version)
    about = json.loads((home / "node_modules" / package / "package.json").read_text())
    folders = [programs]
    if numbers(run([node, "--version"])) < numbers(about.get("engines", {}).get("node", "")):
        newer = HOME / "node"
        folders.append(add_package(npm, newer, "node", NEWER_NODE))
        finish_package(npm, newer, "node", NEWER_NODE)
    finish_package(npm, home, package, version, folders)
    return folders


def add_package(npm, home, package, version):
    """Installs a package into a folder. Returns the folder of its programs."""
    if not mark_of(home, version).exists():
        home.mkdir(parents=True, exist_ok=True)
        (home / "package.json").write_text(json.dumps({"private": True, "dependencies": {package: version}}))
        run([npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], home)
    return home / "node_modules" / ".bin"


def finish_package(npm, home, package, version, folders=()):
    """Runs only the package's own script, which puts its binary in place. Those of its libraries are not needed."""
    if not mark_of(home, version).exists():
        path = os.pathsep.join([*map(str, folders), os.environ["PATH"]])
        run([npm, "rebuild", "--loglevel=error", package], home, os.environ | {"PATH": path})
        mark_of(home, version).touch()


def mark_of(home, version):
    """A file that tells that a folder is complete."""
    return home / f"installed-{version}"


def run(command, cwd=None, env=None):
    """Runs a command that must succeed. Returns what it printed."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotInstalled(f"{' '.join(command[1:3])}: {complaint(done)[0]}")
    return done.stdout


def numbers(version):
    """The first two numbers of a version, or of a range of versions."""
    return [int(number) for number in re.findall(r"\d+", version)[:2]]
