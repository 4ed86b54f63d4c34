"""The Homebrew formula, from a template and the checksums of the archives."""

import re

from names import HERE, PLATFORMS, PROGRAM, crate, read_names

# The platforms that a formula can name.
SERVED = [platform for platform in PLATFORMS if not platform.label.startswith("windows")]


def write_formula(out):
    """Writes the formula. Only once the names say where the archives are, and if all of them are there."""
    names, version = read_names(), crate()["version"]
    if not (names["downloads"] and names["repository"]):
        print("no Homebrew formula: names.toml does not say where the archives are")
        return
    sums = dict(reversed(line.split()) for line in (out / "SHA256SUMS").read_text().splitlines())
    values = {
        "homepage": names["repository"],
        "version": version,
    }
    for platform in SERVED:
        archive = f"{PROGRAM}-{version}-{platform.label}.tar.gz"
        if archive not in sums:
            print(f"no Homebrew formula: {archive} is missing")
            return
        key = platform.label.replace("-", "_")
        values[f"url_{key}"] = names["downloads"].replace("{version}", version) + "/" + archive
        values[f"sha256_{key}"] = sums[archive]
    text = re.sub(r"@(\w+)@", lambda found: values[found.group(1)], (HERE / "homebrew.rb").read_text())
    (out / f"{PROGRAM}.rb").write_text(text)
    print(f"{PROGRAM}.rb: the Homebrew formula")
