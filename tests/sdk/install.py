"""Installs the SDKs below the target folder, in a virtual environment."""

import hashlib
import os
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
    home = TARGET / "sdk-venv"
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    requirements = HERE / "requirements.txt"
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
        print(f"skipped: pip cannot install the SDKs: {complaint(done)[-1]}")
        return None
    mark.touch()
    return python
