"""The names of the release, its version, and the platforms that get packages."""

import os
import re
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# The name of a package that is for local use only.
PROGRAM = "antiphon"


@dataclass(frozen=True)
class Platform:
    """A platform, as the packagers call it."""

    label: str
    triple: str
    wheel: str
    npm: str
    debian: str | None = None
    # What starts a foreign binary on this machine, if the machine can.
    runner: tuple[str, ...] = ()

    @property
    def binary(self):
        return PROGRAM + (".exe" if "windows" in self.triple else "")


# The Linux binaries are static, so they run with every C library, and the wheels may say so.
PLATFORMS = [
    Platform(
        "linux-x86_64",
        "x86_64-unknown-linux-gnu",
        "manylinux_2_17_x86_64.musllinux_1_1_x86_64",
        "linux-x64",
        debian="amd64",
        runner=("qemu-x86_64-static",),
    ),
    Platform(
        "linux-aarch64",
        "aarch64-unknown-linux-gnu",
        "manylinux_2_17_aarch64.musllinux_1_1_aarch64",
        "linux-arm64",
        debian="arm64",
        runner=("qemu-aarch64-static",),
    ),
    Platform("macos-x86_64", "x86_64-apple-darwin", "macosx_10_12_x86_64", "darwin-x64"),
    Platform("macos-aarch64", "aarch64-apple-darwin", "macosx_11_0_arm64", "darwin-arm64"),
    Platform("windows-x86_64", "x86_64-pc-windows-gnu", "win_amd64", "win32-x64", runner=("wine",)),
]


def find_platform(triple):
    """The platform of a Rust target."""
    for platform in PLATFORMS:
        if platform.triple == triple:
            return platform
    known = ", ".join(platform.triple for platform in PLATFORMS)
    raise SystemExit(f"no package is made for {triple}; for these targets: {known}")


def read_names():
    """The content of names.toml. RELEASE_NAMES names another file, for tests."""
    return tomllib.loads(Path(os.environ.get("RELEASE_NAMES") or HERE / "names.toml").read_text())


def crate():
    """The [package] table of the crate: version, description, licence."""
    return tomllib.loads((ROOT / "Cargo.toml").read_text())["package"]


def release_time():
    """The time that every file in a package has, in seconds: the same source gives the same package."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    asked = subprocess.run(
        ["git", "-C", ROOT, "log", "-1", "--format=%ct"], capture_output=True, text=True, check=False
    )
    # A source without a history gets the first day that a zip file can express.
    return int(asked.stdout) if re.fullmatch(r"\d+\n", asked.stdout) else 315_619_200
