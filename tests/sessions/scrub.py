"""Takes out of a session file what is not of the story: texts of the vendor, paths, names of the machine.

A string stays if it is a word of the format (a type, an id, a time, a number). In any other string the words of the
story and tags stay, and all else becomes filler of equal length. Two exceptions keep a sample small: the filler of
one string ends after `LONG` characters, and of a list of tools only the first stays.
"""

import json
import re

LONG = 90
FILLER = "filler words in place of a text of the vendor and "
# What the story says, and the marks of the format that clients look for.
KEPT = re.compile(
    r"Please (?:do|go on with) turn-\w+\. \w+|(?:result|answer|before|thought)-\w+ \w+"
    r"|Reads a file|Asks another|cat \w+\.txt|/home/user/[a-z/]*"
    r"|</?(?:system-reminder|environment_context|skills_instructions|cwd|shell)>"
)
# A type, an id, a time, a digest, a name of a model or tool: one word, shorter than 40 unless it is a digest.
WORD = re.compile(
    r"[\w.:@#+-]{0,39}|[0-9a-f]{40,64}|toolu_01Fixture\d+|/home/user/[a-z/]*|file:///home/user/[a-z/]*"
    # Copilot CLI does not load an event that names another path.
    r"|/v1/messages"
)
# Lists of names that the vendor has chosen.
NAMES = {"addedNames", "addedLines", "addedTypes", "builtInTypes", "names", "digests"}
# Facts about the machine.
MACHINE = {"osVersion", "platform", "shell", "timezone"}


class Scrubber:
    """Scrubs the files of one run, whose home is below `top`."""

    def __init__(self, top, signature):
        self.signature = signature
        here = str(top)
        self.paths = [(here, "/home/user/place"[: len(here)].ljust(len(here), "s"))]
        dashed = re.sub(r"[^A-Za-z0-9]", "-", here)
        self.paths.append((dashed, re.sub(r"[^A-Za-z0-9]", "-", self.paths[0][1])))

    def file(self, data):
        """The file with the same records."""
        text = data.decode()
        for real, fixed in self.paths:
            text = text.replace(real, fixed)
        lines = [json.dumps(self.value(json.loads(line)), **FORM) for line in text.splitlines() if line.strip()]
        return "".join(f"{line}\n" for line in lines).encode()

    def value(self, value, key=""):
        if isinstance(value, dict):
            return {name: self.value(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            items = value[:1] if key == "tools" and value and isinstance(value[0], dict) else value
            return [self.value(item, key) for item in items]
        return self.text(value, key) if isinstance(value, str) else value

    def text(self, text, key):
        if text == self.signature:
            return text
        if key in NAMES:
            return filler(min(len(text), LONG)).replace(" ", "-")
        if key in MACHINE:
            return filler(len(text))
        if WORD.fullmatch(text):
            return text
        if nested := nested_object(text):
            return json.dumps(self.value(nested), **SPACED)
        kept, end, left = [], 0, LONG
        for found in KEPT.finditer(text):
            kept += [filler(min(found.start() - end, left)), found.group()]
            left -= len(kept[-2])
            end = found.end()
        return "".join([*kept, filler(min(len(text) - end, left))])


FORM = {"ensure_ascii": False, "separators": (",", ":")}
SPACED = {"ensure_ascii": False}


def nested_object(text):
    """The arguments of a call, which are JSON in a string."""
    if not text.startswith("{"):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def filler(length):
    return (FILLER * (length // len(FILLER) + 1))[:length]
