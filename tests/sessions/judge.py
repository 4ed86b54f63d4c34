"""A judge of mended session files. It shares no code with the doctor: it reads bytes, and JSON by Python.

`judge` takes what is expected of a case (`expected.json`), the bytes before and after, and the facts about the file,
and returns what is wrong, in sentences.
"""

import json
import re
from collections import Counter
from dataclasses import dataclass

CONSTANT = "[antiphon: "
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


@dataclass
class Mended:
    """The bytes of a file over its life, and its facts (mode, mtime in nanoseconds, inode) at each point."""

    damaged: bytes
    mended: bytes
    again: bytes
    undone: bytes
    facts: list


def judge(expected, life):
    """Returns the faults of a doctor's work on one case."""
    wrong = []
    if life.undone != life.damaged:
        wrong.append("undo does not give the bytes back")
    if life.again != life.mended:
        wrong.append("a second run changes the file")
    if len(set(life.facts)) > 1:
        wrong.append(f"mode, time or inode changed: {life.facts}")
    # A damage that may be told or mended has several ways.
    is_told = not expected["code"] or expected["fix"] == ["none"]
    if life.mended == life.damaged and (is_told or "none" in expected["fix"]):
        return wrong
    if is_told:
        wrong.append("a file with nothing to mend was changed")
    return wrong + moved(expected, life) + invented(expected, life) + not_back(expected, life)


# Bytes stay where they are.


def moved(expected, life):
    """Bytes that moved, and sound lines that were touched."""
    before, after = life.damaged, life.mended
    if len(after) < len(before):
        return ["the file became shorter"]
    wrong, start = [], 0
    for number, line in enumerate(before.split(b"\n"), 1):
        end = start + len(line)
        now = after[start:end]
        if now != line and not is_replaced(expected, number, line, now, after[len(before) :]):
            why = touched(expected, number, line, now)
            wrong += [f"line {number}: {why}"] if why else []
        if end < len(before) and after[end : end + 1] != b"\n" and expected["code"] != "raw_newline":
            wrong.append(f"line {number}: its line feed is gone")
        start = end + 1
    return wrong


def is_replaced(expected, number, line, now, appended):
    """A damaged record that became blank, because an appended one with its id or its payload stands for it."""
    old = parsed(line)
    if old is None or now.strip() or number not in expected["lines"]:
        return False
    name = "uuid" if expected["client"] == "claude-code" else "payload"
    return any(record.get(name) == old.get(name) for record in records(appended))


def touched(expected, number, line, now):
    """Why a change of a line is wrong; empty if it may be so."""
    old = parsed(line)
    if old is None:
        # What was no record may become blank, or a record.
        return ""
    if now.strip() == b"":
        return "" if expected["code"] == "repeated_record" and number in expected["lines"] else "a record was blanked"
    new = parsed(now)
    if new is None:
        return "a record became unreadable"
    changed = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    mine = number in expected["lines"]
    allowed = {"parentUuid"}
    if mine:
        allowed |= {"uuid"} if expected["code"] == "uuid_twice" else set()
        allowed |= {"message", "payload", "metadata", "toolUseResult"} if expected["code"] in CONTENT else set()
    if changed - allowed:
        return f"members of a sound record changed: {sorted(changed - allowed)}"
    return ""


CONTENT = ("invalid_utf8", "lone_surrogate", "orphan", "malformed_call", "duplicate", "no_id")


def parsed(line):
    """The record on a line; None if it is none."""
    try:
        record = json.loads(line.decode())
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


# Nothing is invented.

# Types of records and blocks that a mend may need, and the older samples do not hold.
FORM_WORDS = ("last-prompt", "message", "user", "input_text", "text")


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)


def records(data):
    return [record for line in data.split(b"\n") if (record := parsed(line)) is not None]


def words_of(data):
    """The text of a file, to compare other texts with. Halves of characters and bytes beyond ASCII are blanks."""
    text = re.sub(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}|[\x80-\xff]", b" ", data).decode("ascii", "replace")
    return text


def invented(expected, life):
    """Strings of the mended file that the damaged one does not hold."""
    held = words_of(life.damaged)
    wrong = []
    for record in records(life.mended):
        for text in strings(record):
            if text.startswith(CONSTANT) or text in FORM_WORDS or UUID.fullmatch(text) or TIME.fullmatch(text):
                continue
            pieces = re.findall(r"[\x20-\x7e]{3,}", text.replace("?", "\n").replace("\ufffd", "\n"))
            for piece in pieces:
                plain = json.dumps(piece)[1:-1]
                if plain not in held and not said_in_parts(plain, held, expected):
                    wrong.append(f"a text of {len(text)} characters is invented: {text[:40]!r}")
                    break
    return wrong[:3]


def said_in_parts(piece, held, expected):
    """A text that quotes an orphan or a cut input, or in which a line feed or another byte became a space."""
    if expected["code"] in ("orphan", "malformed_call", "duplicate", "no_id"):
        return CONSTANT in piece or "INVALID_JSON" in piece or any(word in piece for word in expected["words"])
    return expected["code"] == "raw_newline" and all(word in held for word in piece.split(" "))


# Everything comes back.


def not_back(expected, life):
    """Parts of the story that a client would still not send, and faults that remain."""
    if expected["code"] is None or "none" in expected["fix"]:
        return []
    wrong = [f"line {number} is no record" for number in unreadable(life.mended)]
    wrong += [f"line {number} stands there twice" for number in repeated(life.mended)]
    client = expected["client"]
    sent = codex_items(life.mended) if client == "codex" else claude_messages(life.mended)
    if isinstance(sent, str):
        return [*wrong, sent]
    texts, results, calls = sent
    wrong += [f"{name} is not back" for name, word in expected["texts"].items() if word not in texts]
    for name, (call, word) in expected["results"].items():
        if not any(word in text for text in results.get(call, [])):
            wrong.append(f"{name} is not back at its call")
    wrong += [f"the word of an orphan is lost: {word}" for word in expected["words"] if word not in texts]
    wrong += [f"{call} has {len(results.get(call, []))} results" for call in calls if len(results.get(call, [])) != 1]
    wrong += [f"a result has no call: {call}" for call in results if call not in calls]
    return wrong


def unreadable(data):
    lines = data.split(b"\n")
    return [number for number, line in enumerate(lines, 1) if line.strip() and not is_whole(parsed(line))]


def is_whole(record):
    """False for no record, and for one with half of a character."""
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return record is not None


def repeated(data):
    """Lines that stand there twice. Notes without an id or a number may."""
    seen, twice = set(), []
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip() and (b'"uuid":' in line or b'"ordinal":' in line):
            twice += [number] if line in seen else []
            seen.add(line)
    return twice


def codex_items(data):
    """Texts, results and calls of a rollout, or what keeps it from being loaded."""
    seen, texts, results, calls = Counter(), "", {}, []
    found = records(data)
    if not found:
        return "it has no record"
    for index, record in enumerate(found):
        if index == 0 and record.get("type") != "session_meta":
            return "it does not begin with session_meta"
        seen[record.get("ordinal")] += 1
        item = record.get("payload") or {}
        if record.get("type") != "response_item":
            continue
        if item.get("type") == "function_call":
            calls.append(item["call_id"])
        elif item.get("type") == "function_call_output":
            results.setdefault(item["call_id"], []).append(json.dumps(item.get("output"), ensure_ascii=False))
        else:
            texts += json.dumps(item, ensure_ascii=False)
    if found[-1].get("ordinal") is None:
        return "the last record has no ordinal"
    twice = [ordinal for ordinal, count in seen.items() if count > 1 and ordinal is not None]
    return f"ordinals twice: {twice}" if twice else (texts, results, calls)


def claude_messages(data):
    """Texts, results and calls of a chain, read as the oldest client does: by parents alone, with its side results."""
    chain = {}
    for record in records(data):
        if isinstance(record.get("uuid"), str) and not record.get("isSidechain"):
            if record["uuid"] in chain and chain[record["uuid"]] != record:
                return "a uuid stands on two records"
            chain[record["uuid"]] = record
    # The end of the chain: what nobody follows. A record that was appended for an earlier place is followed.
    followed = {record.get("parentUuid") for record in chain.values()}
    leaf = next((record for record in reversed(chain.values()) if record["uuid"] not in followed), None)
    reached, at = {}, leaf
    while at is not None:
        if at["uuid"] in reached:
            return "the chain is a circle"
        reached[at["uuid"]] = at
        parent = at.get("parentUuid")
        if parent is not None and parent not in chain:
            return f"a parent is not in the file: {parent}"
        at = chain.get(parent)
    ids = {record["message"].get("id") for record in reached.values() if record["type"] == "assistant"}
    for record in chain.values():
        if record["type"] == "assistant" and record["message"].get("id") in ids - {None}:
            reached[record["uuid"]] = record
    for record in chain.values():
        if record["type"] == "user" and record.get("parentUuid") in reached and has_result(record):
            reached[record["uuid"]] = record
    return told(reached.values())


def has_result(record):
    content = record["message"].get("content")
    return isinstance(content, list) and any(block.get("type") == "tool_result" for block in content)


def told(reached):
    texts, results, calls = "", {}, []
    for record in reached:
        content = record["message"].get("content") if "message" in record else None
        for block in content if isinstance(content, list) else [{"type": "text", "text": content}]:
            if block.get("type") == "tool_use":
                if not isinstance(block.get("input"), dict):
                    return "the input of a call is no object"
                calls.append(block["id"])
            elif block.get("type") == "tool_result":
                said = json.dumps(block.get("content"), ensure_ascii=False)
                results.setdefault(block["tool_use_id"], []).append(said)
            else:
                texts += json.dumps(block, ensure_ascii=False)
    return texts, results, calls
