#!/usr/bin/env python3
"""The samples hold nothing but the story: no path, name or key of a machine, and no 40 characters of a vendor's text.

    python3 tests/sessions/scrubbed.py              the samples by themselves
    python3 tests/sessions/scrubbed.py --clients    also compared with what each client sends and writes today

Both parts show first that they can fail: planted canaries, and a fresh file that was not scrubbed, must be found. It
shares no code with scrub.py. The last line is `N passed, N failed`, and it exits with 1 if any failed.
"""

import getpass
import json
import re
import shutil
import socket
import sys
import tempfile
from pathlib import Path

from driving import Home
from installs import programs
from server import serving
from story import FILES, PROMPTS, SESSION, SIGNATURE, SUB_ANSWER, SUB_PROMPT, TEXTS, script

SAMPLES = Path(__file__).resolve().parent / "samples"
BYTES_MAX = 60_000
RUN = 40
# What a sample may say in more than one word. The filler is written out here once more, so that a change of it is seen.
FILLED = "filler words in place of a text of the vendor and " * 4
STORY = [*PROMPTS.values(), SUB_PROMPT, SUB_ANSWER, *(text.strip() for text in FILES.values())]
STORY += [f"{name} {word}" for name, word in TEXTS.items() if not name.startswith("prompt")] + ["thought-2 osprey"]
STORY += ["Reads a file", "Asks another", *(f"cat {name}" for name in FILES), SIGNATURE]
TAGS = re.compile(
    r"</?(?:system-reminder|environment_context|skills_instructions|cwd|shell)>"
    r"|(?:file://)?/home/user/plac(?:/work|/home/?)?"
)
# One word: a type, an id, a time, a digest, the path of a request.
WORD = re.compile(r"[^\s/\\]{0,39}|[0-9a-f]{40,64}|toolu_01Fixture\d{15}|rs_fixture\d+|/v1/messages")
PATHS = r"/(?:tmp|root|var|usr|opt|Users|private|work)/|(?<!plac)/home/(?!user/)|[A-Z]:\\\\|-tmp-|-root-"
CANARIES = {
    "a path of a machine": re.compile(PATHS),
    "a key": re.compile(r"sk-[A-Za-z0-9]|Bearer |ghp_|AKIA|eyJ[A-Za-z0-9]"),
    "an address of mail": re.compile(r"[\w.+-]+@[\w-]+\.[a-z]{2,}"),
    "an address of a host": re.compile(r"https?://|\b(?!127\.0\.0\.1)\d{1,3}(?:\.\d{1,3}){3}\b"),
}
# Names of this machine that are no common word.
NAMES = [name for name in {socket.gethostname(), getpass.getuser()} if len(name) > 4]


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)


def foreign(text):
    """What a string says beside story, tags and filler; None if nothing."""
    pieces = TAGS.split(text)
    for phrase in STORY:
        pieces = [rest for piece in pieces for rest in piece.split(phrase)]
    for piece in pieces:
        spaced = piece.replace("-", " ")
        if not (WORD.fullmatch(piece) or piece.strip() in ("", "\n") or FILLED.startswith(spaced) or is_call(piece)):
            return piece
    return None


def is_call(piece):
    """The rests of a call's arguments, from which the story was taken."""
    return bool(re.fullmatch(r'[{}":,a-z_ ]{0,39}', piece))


def dirt(data):
    """What a sample holds that it must not, in sentences."""
    wrong = [] if len(data) <= BYTES_MAX else [f"{len(data)} bytes are above {BYTES_MAX}"]
    text = data.decode()
    for name, pattern in CANARIES.items():
        wrong += [f"{name}: {found.group()!r}" for found in list(pattern.finditer(text))[:3]]
    wrong += ["a name of this machine" for name in NAMES if name in text]
    for number, line in enumerate(text.splitlines(), 1):
        for value in strings(json.loads(line)):
            if (rest := foreign(value)) is not None:
                wrong.append(f"line {number}: {len(rest)} characters are not of the story: {rest[:30]!r}")
    ids = re.findall(r'(?<!parent)"uuid":"([^"]+)"', text)
    if len(set(ids)) != len(ids):
        wrong.append("two records have one id")
    return wrong


PLANTED = {
    "a path": '{"cwd":"/tmp/s-abc/work"}',
    "a user's folder": '{"cwd":"/home/maria/app"}',
    "a key": '{"text":"sk-ant-api03-abcdef"}',
    "a mail": '{"text":"maria@example.org"}',
    "a host": '{"text":"https://example.org"}',
    "a sentence": '{"text":"You are an agent that works on code for its user."}',
    "a sentence behind the story": '{"text":"answer-1 plover Then do as you are told by the user, always."}',
    "a long word": '{"text":"%s"}' % ("Qx7" * 20),
    "an id twice": '{"uuid":"5e551001-0000-4000-8000-000000000001"}\n{"uuid":"5e551001-0000-4000-8000-000000000001"}',
}


def check_samples():
    for name, planted in PLANTED.items():
        yield f"planted: {name} is found", "" if dirt(planted.encode()) else "it is not"
    files = sorted(SAMPLES.glob("*.jsonl"))
    yield "there are samples of both clients", "" if len(files) >= 4 else f"only {len(files)}"
    for file in files:
        yield f"{file.name} holds only the story", "; ".join(dirt(file.read_bytes())[:4])


def fresh_run(client, command):
    """The texts of the vendor in a request of today, and the file that was written."""
    top = Path(tempfile.mkdtemp(prefix="s-"))
    try:
        home = Home(client, command, top / "home", top / "work")
        for name, text in FILES.items():
            (home.work / name).write_text(text, "utf-8")
        with serving(script(client)) as provider:
            home.ask(provider, PROMPTS["turn-1"], SESSION)
        # The id of the session is ours, wherever the vendor has put it.
        texts = [text for body in provider.requests for whole in strings(body) for text in whole.split(SESSION)]
        written = b"".join(file.read_bytes() for file in home.session_files())
        return texts, written.decode("utf-8", "replace")
    finally:
        shutil.rmtree(top, ignore_errors=True)


def runs(text):
    return {text[start : start + RUN] for start in range(len(text) - RUN + 1)}


def check_clients():
    for client, version, command in programs():
        texts, written = fresh_run(client, command)
        vendor = set().union(*(runs(text) for text in texts)) if texts else set()
        yield f"{client} {version}: a request has texts of the vendor", "" if len(vendor) > 5000 else "it has none"
        # The oldest clients write no text of their own into the file: a request stands for it there.
        unscrubbed = runs(written + max(texts, key=len))
        yield f"{client} {version}: what was not scrubbed is found", "" if vendor & unscrubbed else "it is not"
        for file in sorted(SAMPLES.glob(f"{client}-*.jsonl")):
            shared = vendor & runs(file.read_text("utf-8"))
            wrong = str(sorted(shared)[:2]) if shared else ""
            yield f"{file.name} shares no {RUN} characters with {client} {version}", wrong


def main():
    tally = [0, 0]
    parts = [check_samples()] + ([check_clients()] if "--clients" in sys.argv else [])
    for name, wrong in (check for part in parts for check in part):
        tally[bool(wrong)] += 1
        print(f"FAILED {name}: {wrong}" if wrong else f"ok {name}", flush=True)
    print(f"{tally[0]} passed, {tally[1]} failed")
    return int(tally[1] > 0)


if __name__ == "__main__":
    sys.exit(main())
