"""What docs/clients.md says of each agent: its version, its commands and its settings."""

import re

from install import HERE

DOCUMENT = HERE.parent.parent / "docs" / "clients.md"
PROXY = "http://127.0.0.1:4747"
ROW = re.compile(r"^\| \[(?P<name>[^]]+)\]\(#[^)]*\) \| (?P<versions>[^|]+) \|", re.M)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.S | re.M)


class Undocumented(Exception):
    """The document has no such version or setting."""


def documented_versions():
    """The last version of each agent in the table."""
    return {row["name"]: row["versions"].split(",")[-1].strip() for row in ROW.finditer(DOCUMENT.read_text())}


def section(agent):
    """The text below an agent's heading."""
    found = re.search(rf"^### {re.escape(agent)}\n(.*?)(?=^##)", DOCUMENT.read_text(), re.S | re.M)
    if not found:
        raise Undocumented(f"docs/clients.md has no section {agent}")
    return found[1]


def the_only(found, agent, what):
    if len(found) != 1:
        raise Undocumented(f"docs/clients.md, {agent}: {len(found)} times {what!r}, not once")
    return found[0].strip()


def block(agent, words):
    """The block that contains the words."""
    return the_only([code for _, code in BLOCK.findall(section(agent)) if words in code], agent, words)


def line(agent, start, words=""):
    """The line of a block that begins with `start`, and contains the words."""
    lines = [line for _, code in BLOCK.findall(section(agent)) for line in code.splitlines()]
    return the_only([line for line in lines if line.startswith(start) and words in line], agent, f"{start} … {words}")


def quoted(agent, start):
    """What stands in back quotes outside of blocks, and begins with these words."""
    text = BLOCK.sub("", section(agent))
    return the_only([code for code in re.findall(r"`([^`]+)`", text) if code.startswith(start)], agent, start)
