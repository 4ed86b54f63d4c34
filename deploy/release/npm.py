"""The npm packages: a wrapper, and one package with the binary for each platform. None has an install script.

While there is no name for them, one package holds wrapper and binary, and depends on nothing: a dependency that nobody
has published could be published by anybody.
"""

import json

from contents import document, tar_gz
from names import HERE, PLATFORMS, PROGRAM, crate


def manifest(release, **more):
    """The fields that every package.json has."""
    fields = {
        "name": release.names["npm"] or PROGRAM,
        "version": release.version,
        "description": crate()["description"],
        "license": crate()["license"],
    }
    if release.names["repository"]:
        fields["repository"] = {"type": "git", "url": f"git+{release.names['repository']}.git"}
    return fields | more


def pack(release, stem, fields, files, executable):
    """Writes a tgz. npm wants everything below `package/`."""
    files = {"package.json": (json.dumps(fields, indent=2) + "\n").encode()} | files
    files |= {name: document(name) for name in ("LICENSE-APACHE", "LICENSE-MIT")}
    files = {f"package/{path}": content for path, content in files.items()}
    return release.write(f"{stem}-{release.version}.tgz", tar_gz(files, [f"package/{executable}"]))


def platform_name(release, platform):
    return f"{release.names['npm']}-{platform.npm}"


def file_stem(name):
    """The name of a package as `npm pack` writes it into a file name."""
    return name.removeprefix("@").replace("/", "-")


def wrapper_files():
    return {"bin/antiphon.js": (HERE / "npm" / "antiphon.js").read_bytes(), "README.md": document("README.md")}


def pack_npm(release):
    """Writes the package of a platform, or the one for local use while there is no name."""
    system, cpu = release.platform.npm.split("-")
    place = {"os": [system], "cpu": [cpu]}
    binary = release.platform.binary
    if release.names["npm"]:
        name = platform_name(release, release.platform)
        fields = manifest(release, name=name, preferUnplugged=True, **place)
        files = {f"bin/{binary}": release.binary.read_bytes()}
        return pack(release, file_stem(name), fields, files, f"bin/{binary}")
    # `private`: `npm publish` refuses it.
    fields = manifest(release, private=True, bin={PROGRAM: "bin/antiphon.js"}, engines={"node": ">=18"}, **place)
    inside = f"binaries/{release.platform.npm}/{binary}"
    files = wrapper_files() | {inside: release.binary.read_bytes()}
    return pack(release, f"{PROGRAM}-{release.platform.npm}", fields, files, inside)


def pack_wrapper(release):
    """Writes the wrapper that picks a platform's package. Only with a name: see above."""
    if not release.names["npm"]:
        return None
    packages = {platform.npm: platform_name(release, platform) for platform in PLATFORMS}
    fields = manifest(
        release,
        bin={PROGRAM: "bin/antiphon.js"},
        engines={"node": ">=18"},
        optionalDependencies=dict.fromkeys(packages.values(), release.version),
        binaries=packages,
    )
    return pack(release, file_stem(release.names["npm"]), fields, wrapper_files(), "bin/antiphon.js")
