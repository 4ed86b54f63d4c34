"""What is in the packages: the binary, its manual page and completions, the licences."""

import gzip
import io
import platform as machine
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from names import PROGRAM, ROOT, Platform, crate, read_names, release_time

# The documents that go along, relative to the root of the source.
DOCUMENTS = ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT", "config.example.toml"]
SHELLS = {"bash": "antiphon.bash", "zsh": "_antiphon", "fish": "antiphon.fish"}


@dataclass
class Release:
    """One binary of a platform, and everything the packages need besides."""

    binary: Path
    platform: Platform
    # The folder for the packages.
    out: Path

    @cached_property
    def names(self):
        return read_names()

    @cached_property
    def version(self):
        return crate()["version"]

    @cached_property
    def command(self):
        """The command that runs the binary here. None if this machine cannot."""
        here = {"linux": "linux", "darwin": "macos", "win32": "windows"}.get(sys.platform, sys.platform)
        architecture = machine.machine().lower().replace("amd64", "x86_64").replace("arm64", "aarch64")
        if self.platform.label == f"{here}-{architecture}":
            return [str(self.binary)]
        runner = self.platform.runner
        return [*runner, str(self.binary)] if runner and shutil.which(runner[0]) else None

    def say(self, *arguments):
        """What the binary prints."""
        return subprocess.run([*self.command, *arguments], capture_output=True, check=True, timeout=60).stdout

    @cached_property
    def extras(self):
        """The manual page and the completions: {path: content}. Empty if the binary cannot be run here."""
        if self.command is None:
            print(f"without manual page and completions: a {self.platform.label} binary does not run here")
            return {}
        printed = self.say("--version").decode().split()
        assert printed == [PROGRAM, self.version], f"the binary is {printed}, the source is {self.version}"
        found = {"man/antiphon.1": self.say("man")}
        for shell, name in SHELLS.items():
            found[f"completions/{name}"] = self.say("completions", shell)
        return found

    def write(self, name, content):
        """Writes a package, and prints its name and size."""
        self.out.mkdir(parents=True, exist_ok=True)
        path = self.out / name
        path.write_bytes(content)
        print(f"{path.name}: {len(content):,} bytes")
        return path


def document(name):
    """The content of a document."""
    return (ROOT / name).read_bytes()


def tar_gz(files, executable=()):
    """A tar.gz of {path: content}. Files in `executable` are executable. The same files give the same bytes."""
    raw = io.BytesIO()
    with gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=6, mtime=release_time(), filename="") as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path, content in files.items():
                entry = tarfile.TarInfo(path)
                entry.size, entry.mtime = len(content), release_time()
                entry.mode = 0o755 if path in executable else 0o644
                archive.addfile(entry, io.BytesIO(content))
    return raw.getvalue()


def zip_file(files, executable=()):
    """A zip of {path: content}. Files in `executable` are executable. The same files give the same bytes."""
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path, time.gmtime(release_time())[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if path in executable else 0o100644) << 16
            archive.writestr(entry, content)
    return raw.getvalue()


def pack_archive(release):
    """The archive for everybody else: one folder with the binary and its documents."""
    folder = f"{PROGRAM}-{release.version}-{release.platform.label}"
    binary = f"{folder}/{release.platform.binary}"
    files = {binary: release.binary.read_bytes()}
    files |= {f"{folder}/{name}": document(name) for name in DOCUMENTS}
    files |= {f"{folder}/{path}": content for path, content in release.extras.items()}
    if release.platform.label.startswith("windows"):
        return release.write(f"{folder}.zip", zip_file(files, [binary]))
    return release.write(f"{folder}.tar.gz", tar_gz(files, [binary]))
