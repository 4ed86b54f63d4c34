"""Resumes a session file with its client, on loopback, and reads what the next request holds of the story."""

import json
import re
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from driving import Home
from log_lines import answered_by
from pairs import parts_of
from server import serving
from story import RESUMED, TEXTS, script


@dataclass
class Resumed:
    """What a client did with a file: `dead` names why there was no answer."""

    dead: str = ""
    texts: dict = field(default_factory=dict)
    results: dict = field(default_factory=dict)
    calls: list = field(default_factory=list)
    requests: list = field(default_factory=list)
    file: bytes = b""

    def missing(self, story):
        """The names of what a whole request would hold: texts, and results by the number of their call."""
        lost = [name for name in story["texts"] if name not in self.texts]
        # A result counts if it stands at its own call, in its own words.
        results = story["results"].items()
        return lost + [name for name, (call, word) in results if word not in self.results.get(call, "")]


def story_of(client, data):
    """The story that a sample holds: words of texts, and of results with their calls."""
    known = {"result-1": "kestrel", "result-2": "lapwing", "result-3": "merlin"}
    known |= {"result-4": "nightjar", "result-5": "ouzel", "result-sub": "godwit"}
    found = {}
    for line in data.splitlines():
        record = json.loads(line)
        for call, text in results_in(client, record):
            for name, word in known.items():
                if word in text:
                    found[name] = (call, word)
    return {"texts": dict(TEXTS), "results": found}


def results_in(client, record):
    """The calls of the results of a record, with their words."""
    if client in ("copilot", "qwen-code"):
        for call in answered_by(client, record):
            yield call, json.dumps(record)
        return
    if client == "codex":
        item = record.get("payload", {})
        if str(item.get("type", "")).endswith("_call_output"):
            yield item["call_id"], json.dumps(item.get("output"))
        return
    if record.get("type") != "user":
        return
    content = record["message"].get("content")
    for block in content if isinstance(content, list) else []:
        if block.get("type") == "tool_result":
            yield block["tool_use_id"], json.dumps(block.get("content"))


def session_of(sound):
    """The id under which the client knows a session: read from the sample, since a damage may have taken it."""
    return re.search(rb'"session_?[iI]d":"([0-9a-f-]{36})"', sound).group(1).decode()


def resumed(client, command, data, session, beside=None):
    """Resumes a file, with the files `beside` it by name."""
    top = Path(tempfile.mkdtemp(prefix="s-"))
    try:
        home = Home(client, command, top / "home", top / "work")
        place = place_of(home, session)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        for name, other in (beside or {}).items():
            (place.parent / name).parent.mkdir(parents=True, exist_ok=True)
            (place.parent / name).write_bytes(other)
        with serving(script(client)) as provider:
            code, printed = home.ask(provider, RESUMED, session, resume=True)
        after = place.read_bytes() if place.exists() else b""
        return read_back(code, printed, provider, after)
    finally:
        shutil.rmtree(top, ignore_errors=True)


def place_of(home, session):
    if home.client == "copilot":
        return home.home / ".copilot/session-state" / session / "events.jsonl"
    if home.client == "qwen-code":
        project = re.sub(r"[^A-Za-z0-9]", "-", str(home.work))
        return home.home / ".qwen/projects" / project / "chats" / f"{session}.jsonl"
    if home.client == "codex":
        return home.home / f".codex/sessions/2026/11/30/rollout-2026-11-30T12-00-00-{session}.jsonl"
    project = re.sub(r"[^A-Za-z0-9]", "-", str(home.work))
    return home.home / ".claude/projects" / project / f"{session}.jsonl"


def read_back(code, printed, provider, after):
    turns = [body for body in provider.turns() if "eider" in json.dumps(body)]
    outcome = Resumed(requests=turns, file=after)
    if not turns:
        outcome.dead = f"not loaded ({code}): {printed[-160:]!r}"
        return outcome
    outcome.calls, outcome.results, everything = parts_of(turns[-1])
    outcome.texts = {name: word for name, word in TEXTS.items() if word in everything}
    if provider.refusals:
        outcome.dead = f"refused: {provider.refusals[-1]}"
        if "wigeon" in printed:
            outcome.dead = f"first {outcome.dead}"
    elif code or "wigeon" not in printed:
        outcome.dead = f"no answer ({code}): {printed[-160:]!r}"
    return outcome
