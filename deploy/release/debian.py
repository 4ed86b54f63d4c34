"""The Debian package: binary, unit, manual page, completions, and an example of the configuration."""

import gzip
import os
import shutil
import subprocess
import tempfile
from email.utils import formatdate
from pathlib import Path

from contents import document
from names import HERE, PROGRAM, ROOT, crate, release_time

# Who answers for a package that is for local use only.
NOBODY = f"{PROGRAM} (local package) <{PROGRAM}@localhost>"
# What lintian finds in a package that nobody publishes. The other overrides, with reasons, are in debian/.
LOCAL_OVERRIDES = b"""
# Built for local use: nobody answers for it yet.
antiphon: bogus-mail-host *
antiphon: bogus-mail-host-in-debian-changelog *
"""
COMPLETIONS = {
    "completions/antiphon.bash": "usr/share/bash-completion/completions/antiphon",
    "completions/_antiphon": "usr/share/zsh/vendor-completions/_antiphon",
    "completions/antiphon.fish": "usr/share/fish/vendor_completions.d/antiphon.fish",
}


def copyright_file(release):
    """The licences, in Debian's format."""
    source = f"Source: {release.names['repository']}\n" if release.names["repository"] else ""
    # Debian itself has the Apache licence, in /usr/share/common-licenses.
    mit = "".join(f" {line}\n" if line.strip() else " .\n" for line in document("LICENSE-MIT").decode().splitlines())
    return (
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"
        f"Upstream-Name: {PROGRAM}\n{source}\nFiles: *\n"
        f"Copyright: {crate().get('authors', ['the authors of Antiphon'])[0]}\nLicense: {crate()['license'].replace('OR', 'or')}\n\n"
        f"License: MIT\n{mit}\n"
        "License: Apache-2.0\n On Debian systems the text of this license is in\n /usr/share/common-licenses/Apache-2.0.\n"
    )


def control_file(release, installed_bytes):
    """The control file. The binary is static, so the package depends on nothing."""
    words = crate()["description"].split()
    long = (
        " A request whose tool calls and results do not match is refused by the provider\n"
        " with 400. Antiphon repairs such requests on their way, and forwards all others\n"
        " byte for byte. It listens on 127.0.0.1:4747 and needs no configuration.\n"
        " .\n"
        " The service is installed, but neither enabled nor started:\n"
        " systemctl enable --now antiphon\n"
    )
    # Debian wants the first line without an article, and below 80 characters.
    short = "reverse proxy for LLM provider APIs that answers every tool call"
    assert words[0] == "A", "the description has changed: look at the one of the Debian package too"
    fields = {
        "Package": PROGRAM,
        "Version": release.version,
        "Architecture": release.platform.debian,
        "Maintainer": release.names["maintainer"] or NOBODY,
        "Installed-Size": str(-(-installed_bytes // 1024)),
        # Without them the binary uses its built-in roots.
        "Recommends": "ca-certificates",
        "Section": "net",
        "Priority": "optional",
    }
    if release.names["repository"]:
        fields["Homepage"] = release.names["repository"]
    return "".join(f"{name}: {value}\n" for name, value in fields.items()) + f"Description: {short}\n{long}"


def debian_changelog(release):
    """The changelog in Debian's format. What has changed is in CHANGELOG.md."""
    maintainer = release.names["maintainer"] or NOBODY
    date = formatdate(release_time(), usegmt=False)
    return f"{PROGRAM} ({release.version}) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- {maintainer}  {date}\n"


def packed(content):
    """Compressed as Debian wants it: best, without name and time."""
    return gzip.compress(content, 9, mtime=0)


# Installed, and neither enabled nor started.
UNITS = ["antiphon.service", "antiphon.socket", "antiphon-admin.socket"]


def files(release):
    """The files below the root: {path: (content, mode)}."""
    share = f"usr/share/doc/{PROGRAM}"
    overrides = (HERE / "debian" / "lintian-overrides").read_bytes()
    if not release.names["maintainer"]:
        overrides += LOCAL_OVERRIDES
    plain = {
        **{f"usr/lib/systemd/system/{unit}": (ROOT / "deploy/systemd" / unit).read_bytes() for unit in UNITS},
        f"{share}/copyright": copyright_file(release).encode(),
        f"{share}/changelog.gz": packed(debian_changelog(release).encode()),
        f"{share}/CHANGELOG.md.gz": packed(document("CHANGELOG.md")),
        f"{share}/README.md.gz": packed(document("README.md")),
        f"{share}/examples/config.example.toml": document("config.example.toml"),
        f"usr/share/lintian/overrides/{PROGRAM}": overrides,
    }
    if release.extras:
        plain["usr/share/man/man1/antiphon.1.gz"] = packed(release.extras["man/antiphon.1"])
        plain |= {path: release.extras[name] for name, path in COMPLETIONS.items()}
    found = {path: (content, 0o644) for path, content in plain.items()}
    found[f"usr/bin/{PROGRAM}"] = (release.binary.read_bytes(), 0o755)
    return found


def pack_debian(release):
    """Writes the package with dpkg-deb. Skips it where dpkg-deb is missing."""
    if release.platform.debian is None:
        return None
    if not shutil.which("dpkg-deb"):
        print("skipped: the Debian package: dpkg-deb is not installed")
        return None
    content = files(release)
    name = f"{PROGRAM}_{release.version}_{release.platform.debian}.deb"
    with tempfile.TemporaryDirectory() as work:
        root = Path(work) / "root"
        for path, (bytes_, mode) in content.items():
            place = root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(bytes_)
            place.chmod(mode)
        inner = root / "DEBIAN"
        inner.mkdir()
        size = sum(len(bytes_) for bytes_, _ in content.values())
        (inner / "control").write_text(control_file(release, size))
        md5 = subprocess.run(["md5sum", *sorted(content)], cwd=root, capture_output=True, check=True).stdout
        (inner / "md5sums").write_bytes(md5)
        for script in ("postinst", "prerm", "postrm"):
            shutil.copyfile(HERE / "debian" / script, inner / script)
            (inner / script).chmod(0o755)
        for place in [root, *root.rglob("*")]:
            if place.is_dir():
                place.chmod(0o755)
        built = Path(work) / name
        # dpkg-deb takes the time of every file from the environment.
        environment = os.environ | {"SOURCE_DATE_EPOCH": str(release_time())}
        command = ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", root, built]
        subprocess.run(command, check=True, capture_output=True, env=environment)
        return release.write(name, built.read_bytes())
