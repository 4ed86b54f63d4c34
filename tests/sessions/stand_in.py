#!/usr/bin/env python3
"""A stand-in for the doctor, which is told what is damaged, and mends it as the doctor should.

    python3 tests/sessions/stand_in.py SEED LIE doctor …     the arguments of antiphon behind the lie

With it the judge and the runs with real clients are tested without a binary: it finds nothing by itself, it knows the
damaged files of a seed. With a lie instead of `honest` it does its work badly in one way, which the checks must see.
"""

import json
import os
import re
import sys
import uuid
from pathlib import Path

from damage import cases
from log_lines import FORM

RESULT = "[antiphon: no result was recorded for this tool call; its outcome is unknown. "
RESULT += "The tool may have run: check before running it again.]"


def mend(expected, data):
    """The mended bytes. A case that is only told stays as it is."""
    if not expected["code"] or expected["fix"] == ["none"] or expected["code"] not in FIXES:
        return data
    lines, line = data.split(b"\n"), expected["lines"][0] - 1
    added = []
    FIXES[expected["code"]](expected, lines, line, added)
    if expected["client"] == "claude-code":
        relink(lines, {record["uuid"] for record in added if "uuid" in record})
    data = b"\n".join(lines)
    if added and not data.endswith(b"\n"):
        data += b"\n"
    return data + b"".join(json.dumps(record, **FORM).encode() + b"\n" for record in added)


def spaces(lines, index, start, end):
    lines[index] = lines[index][:start] + b" " * (end - start) + lines[index][end:]


def nul_bytes(expected, lines, line, added):
    lines[line] = lines[line].replace(b"\0", b" ")


def byte_order_mark(expected, lines, line, added):
    spaces(lines, line, 0, 3)


def invalid_utf8(expected, lines, line, added):
    lines[line] = re.sub(rb"[\x80-\xff]", b"?", lines[line])


def lone_surrogate(expected, lines, line, added):
    lines[line] = re.sub(rb"\\ud[89a-f][0-9a-f]{2}", rb"\\ufffd", lines[line])


def torn_record(expected, lines, line, added):
    end = len(lines[line])
    for found in re.finditer(rb'\{"', lines[line]):
        try:
            if found.start() and "type" in json.loads(lines[line][found.start() :]):
                end = found.start()
                break
        except ValueError:
            continue
    spaces(lines, line, 0, end)


def joined_records(expected, lines, line, added):
    text = lines[line].decode()
    _, end = json.JSONDecoder().raw_decode(text)
    added.append(json.loads(text[end:]))
    spaces(lines, line, end, len(lines[line]))


def raw_newline(expected, lines, line, added):
    lines[line : line + 2] = [lines[line] + b" " + lines[line + 1]]


def repeated_record(expected, lines, line, added):
    spaces(lines, line, 0, len(lines[line]))


def uuid_twice(expected, lines, line, added):
    taken = json.loads(lines[line])["uuid"]
    fresh = str(uuid.uuid5(uuid.NAMESPACE_OID, taken)).encode()
    lines[line] = lines[line].replace(b'"uuid":"' + taken.encode(), b'"uuid":"' + fresh)
    for index in range(line + 1, len(lines)):
        lines[index] = lines[index].replace(b'"parentUuid":"' + taken.encode(), b'"parentUuid":"' + fresh)


def parent_circle(expected, lines, line, added):
    lines[line] = re.sub(rb'"parentUuid":"[^"]{36}"', b'"parentUuid":null' + b" " * 34, lines[line], count=1)


def nothing(expected, lines, line, added):
    """The links are mended for every case."""


def unanswered(expected, lines, line, added):
    call = json.loads(lines[line])
    if expected["client"] == "codex":
        output = {"type": "function_call_output", "call_id": call["payload"]["call_id"], "output": RESULT}
        ordinal = json.loads(lines[-2])["ordinal"] + 1
        added.append({"timestamp": call["timestamp"], "ordinal": ordinal, "type": "response_item", "payload": output})
        return
    block = {"tool_use_id": call["message"]["content"][-1]["id"], "type": "tool_result"}
    block |= {"content": RESULT, "is_error": True}
    fresh = str(uuid.uuid5(uuid.NAMESPACE_OID, call["uuid"]))
    names = ("isSidechain", "userType", "entrypoint", "cwd", "sessionId", "version", "gitBranch", "timestamp")
    record = {"parentUuid": call["uuid"]} | {name: call[name] for name in names if name in call}
    added.append(record | {"type": "user", "message": {"role": "user", "content": [block]}, "uuid": fresh})
    for index in range(line + 1, len(lines)):
        relink_line(lines, index, call["uuid"], fresh)


def orphan(expected, lines, line, added):
    """The words of the result as a text, filled with spaces where JSON has them free."""
    record, old = json.loads(lines[line]), lines[line]
    if expected["client"] == "codex":
        words = record["payload"]["output"]
        record["payload"] = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": words}]}
    else:
        words = str(record["message"]["content"][0]["content"])
        record["message"]["content"] = [{"type": "text", "text": words}]
    new = json.dumps(record, **FORM).encode()
    lines[line] = new + b" " * (len(old) - len(new))


def ordinal_missing(expected, lines, line, added):
    last = json.loads(lines[line])
    event = {"type": "task_complete", "turn_id": last["payload"]["turn_id"], "last_agent_message": None}
    added.append({"timestamp": last["timestamp"], "ordinal": line + 1, "type": "event_msg", "payload": event})


FIXES = {
    "nul_bytes": nul_bytes,
    "byte_order_mark": byte_order_mark,
    "invalid_utf8": invalid_utf8,
    "lone_surrogate": lone_surrogate,
    "torn_record": torn_record,
    "joined_records": joined_records,
    "raw_newline": raw_newline,
    "repeated_record": repeated_record,
    "lost_parent": nothing,
    "parent_in_subagent": nothing,
    "uuid_twice": uuid_twice,
    "parent_circle": parent_circle,
    "unanswered": unanswered,
    "orphan": orphan,
    "ordinal_missing": ordinal_missing,
}


def relink(lines, appended):
    """A parent that is in no record of the conversation becomes the one before it."""
    records = []
    for index, line in enumerate(lines):
        try:
            records.append((index, json.loads(line)))
        except ValueError:
            continue
    known = {record["uuid"] for _, record in records if "uuid" in record and not record.get("isSidechain")}
    known |= appended
    before = None
    for index, record in records:
        if "uuid" not in record or record.get("isSidechain"):
            continue
        parent = record.get("parentUuid")
        if parent and parent not in known and before:
            relink_line(lines, index, parent, before)
        before = record["uuid"]


def relink_line(lines, index, old, new):
    """The record on a line follows another one."""
    lines[index] = lines[index].replace(f'"parentUuid":"{old}'.encode(), f'"parentUuid":"{new}'.encode())


# The command line.

LIES = {
    "blind": "finds nothing",
    "elsewhere": "names another line",
    "idle": "mends nothing",
    "talks": "prints what it reads",
    "moves": "puts a byte before the file",
    "drops": "deletes a line",
    "touches": "changes a sound record",
    "invents": "writes words of its own as a result",
    "late": "leaves another time",
    "replaces": "writes a new file in its place",
    "again": "mends what is mended",
    "forgets": "takes back less than it wrote",
}


def main():
    seed, lie, _, *arguments = sys.argv[1:]
    file = Path(arguments[-1])
    data, kept = file.read_bytes(), file.with_suffix(".kept")
    before = kept.read_bytes() if kept.exists() else data
    # The folder has the name of the case.
    [(expected, damaged, _)] = cases(int(seed), lambda name: name in file.parts)
    assert before == damaged, "the file is not the one of this seed"
    if lie == "talks":
        print(data.decode("utf-8", "replace"), file=sys.stderr)
    if "--undo" in arguments:
        write(file, before[:-1] if lie == "forgets" else before, "honest")
        kept.unlink()
        return 0
    is_mended = data == mend(expected, before) and data != before
    if "--fix" in arguments:
        mended = told_badly(lie, expected, mend(expected, data) if not is_mended else data)
        if mended != data and lie != "idle" and (not kept.exists() or lie == "again"):
            if not kept.exists():
                kept.write_bytes(data)
            write(file, mended, lie)
            is_mended = True
        return int(bool(expected["code"]) and not is_mended)
    findings = []
    if expected["code"] and not is_mended and not kept.exists() and lie != "blind":
        line = expected["lines"][0] + (3 if lie == "elsewhere" else 0)
        severity = expected["severity"] or "warning"
        finding = {"code": expected["code"], "severity": severity, "line": line, "lines": []}
        findings.append(finding | {"repair": expected["fix"][0]})
    if "--output" in arguments:
        print(json.dumps({"version": 1, "files": [{"findings": findings}]}))
    return int(bool(findings) or (not data and lie != "blind"))


def told_badly(lie, expected, mended):
    """The mended bytes, with a lie."""
    if expected["fix"] == ["none"] or not expected["code"]:
        return mended
    lines = mended.split(b"\n")
    if lie == "moves":
        return b" " + mended
    if lie == "again":
        return mended + b"\n"
    if lie == "drops":
        return b"\n".join(lines[:3] + lines[4:])
    if lie == "touches":
        return mended.replace(b'"version":"2', b'"version":"3', 1).replace(b'"cli_version":"0', b'"cli_version":"1', 1)
    if lie == "invents":
        return mended.replace(RESULT.encode(), b"The tool has done all of it. " * 2)
    return mended


def write(file, data, lie):
    """Writes in place, and puts the time back."""
    stat = file.stat()
    if lie == "replaces":
        fresh = file.with_suffix(".new")
        fresh.write_bytes(data)
        fresh.chmod(stat.st_mode)
        fresh.rename(file)
    else:
        file.write_bytes(data)
    if lie != "late":
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


if __name__ == "__main__":
    sys.exit(main())
