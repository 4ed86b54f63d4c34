"""The wheel: the binary as a script of the environment. Nothing is built or downloaded when it is installed."""

import base64
import hashlib

from contents import document, zip_file
from names import PROGRAM, crate


def metadata(release):
    """The METADATA file."""
    name = release.names["pypi"] or PROGRAM
    lines = [
        "Metadata-Version: 2.3",
        f"Name: {name}",
        f"Version: {release.version}",
        f"Summary: {crate()['description']}",
        f"License: {crate()['license']}",
        "Requires-Python: >=3.8",
        "Classifier: Environment :: Console",
    ]
    if release.names["repository"]:
        lines.append(f"Project-URL: Source, {release.names['repository']}")
    if not release.names["pypi"]:
        # PyPI refuses a package with this mark.
        lines.append("Classifier: Private :: Do Not Upload")
    return "\n".join(lines) + "\n"


def record_line(path, content):
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(content)}"


def pack_wheel(release):
    """Writes the wheel of a platform."""
    name = (release.names["pypi"] or PROGRAM).replace("-", "_").lower()
    base = f"{name}-{release.version}"
    tags = release.platform.wheel.split(".")
    script = f"{base}.data/scripts/{release.platform.binary}"
    wheel = ["Wheel-Version: 1.0", f"Generator: {PROGRAM}", "Root-Is-Purelib: false"]
    wheel += [f"Tag: py3-none-{tag}" for tag in tags]
    files = {
        script: release.binary.read_bytes(),
        f"{base}.dist-info/METADATA": metadata(release).encode(),
        f"{base}.dist-info/WHEEL": ("\n".join(wheel) + "\n").encode(),
    }
    for licence in ("LICENSE-APACHE", "LICENSE-MIT"):
        files[f"{base}.dist-info/licenses/{licence}"] = document(licence)
    if "man/antiphon.1" in release.extras:
        files[f"{base}.data/data/share/man/man1/antiphon.1"] = release.extras["man/antiphon.1"]
    record = f"{base}.dist-info/RECORD"
    lines = [record_line(path, content) for path, content in files.items()] + [f"{record},,"]
    files[record] = ("\n".join(lines) + "\n").encode()
    return release.write(f"{base}-py3-none-{release.platform.wheel}.whl", zip_file(files, [script]))
