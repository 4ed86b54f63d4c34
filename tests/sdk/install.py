"""Installs the SDKs below the target folder: those for Python in a virtual environment, those for Node beside it."""

import hashlib
import os
import shutil
import subprocess
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or HERE.parent.parent / "target").resolve()


def stamp(home, *files):
    """A file that tells that just these are installed in a folder."""
    content = b"".join(file.read_bytes() for file in files)
    return home / f"installed-{hashlib.sha256(content).hexdigest()[:16]}"


def complaint(done):
    """What a command that failed said, in lines."""
    return (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]


def python_sdks():
    """The interpreter of a virtual environment that holds the SDKs; None, with a word why, where it cannot be."""
    return python_with(HERE / "requirements.txt", "sdk-venv", "the SDKs")


def python_with(requirements, name, what):
    """The interpreter of a virtual environment below target; None, with a word why, where it cannot be."""
    home = TARGET / name
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    mark = stamp(home, requirements)
    if mark.exists():
        return python
    try:
        venv.create(home, with_pip=True, clear=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"skipped: no virtual environment with pip: {error}")
        return None
    install = [str(python), "-m", "pip", "install", "--quiet", "-r", str(requirements)]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"skipped: pip cannot install {what}: {complaint(done)[-1]}")
        return None
    mark.touch()
    return python


def node_sdks():
    """The folder that holds the Node script and its SDKs; None, with a word why, where it cannot be."""
    return node_with(HERE / "node", "sdk-node", "the Node SDKs")


def node_with(package, name, what):
    """The folder below target that holds a package and its SDKs; None, with a word why, where it cannot be."""
    npm = shutil.which("npm")
    if not npm or not shutil.which("node"):
        print(f"skipped: {what}: node or npm is not installed")
        return None
    home = TARGET / name
    home.mkdir(parents=True, exist_ok=True)
    files = sorted(package.glob("*.*"))
    for file in files:
        shutil.copy(file, home)
    mark = stamp(home, *(file for file in files if file.suffix == ".json"))
    if mark.exists():
        return home
    install = [npm, "ci", "--engine-strict", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run(install, cwd=home, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"skipped: {what}: npm cannot install them: {complaint(done)[0]}")
        return None
    mark.touch()
    return home
