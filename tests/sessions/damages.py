"""The damages, as rows: each changes the lines of a sample, and says what a doctor must find and give back.

`code` and `fix` are those of the doctor. A function returns its line, counted from 1 by line feeds, or a dict with
more: `lost` names the parts of the story whose bytes are gone, `line` may be a list if several lines would be right.
`code` is None for a file that is healthy although it looks odd. `severity` is that of every version of the client, where
cases of one code differ.
"""

import json

from log_lines import FORM, calls_of, new_uuid
from story import SESSION

ROWS = []
CLAUDE, CODEX = "claude-code", "codex"
COPILOT, QWEN = "copilot", "qwen-code"
# What Claude Code 2.1.332 writes at its start for a call without a result.
INTERRUPTED = "[Tool call interrupted: the session ended before this call's result was recorded]"


def damage(code, fix, clients=(CLAUDE, CODEX, COPILOT, QWEN), name=None, **facts):
    """A row. `fix` may differ by client."""

    def add(function):
        row = {"name": name or function.__name__, "code": code, "fix": fix, "clients": clients, "make": function}
        ROWS.append(row | facts)
        return function

    return add


# The layer of the file.


@damage(None, None)
def sound(log, rng):
    return 0


@damage(None, None)
def crlf(log, rng):
    log.lines = [line + b"\r" for line in log.lines]
    return 0


@damage(None, None)
def line_separator(log, rng):
    """U+2028 as it is: a line for some readers, and none for the clients."""
    index = log.text("plover")
    log.lines[index] = log.lines[index].replace(b"answer-1 plover", "answer-1\u2028plover".encode())
    return 0


@damage(None, None)
def unknown_record(log, rng):
    record = {"type": "of_a_later_version", "timestamp": "2026-11-30T16:00:00.000Z"}
    record |= {"ordinal": len(log.lines), "payload": {}} if log.client == CODEX else {"sessionId": SESSION}
    if log.client == COPILOT:
        record = {"type": "of_a_later_version", "data": {}, "id": new_uuid(rng), "parentId": None}
    log.lines.append(json.dumps(record, **FORM).encode())
    return 0


@damage("nul_bytes", "in_place")
def nul_before_record(log, rng):
    """A run of NUL bytes before a record, on its line."""
    index = log.result(rng.choice(log.numbers()))
    log.lines[index] = bytes(rng.randint(1, 600)) + log.lines[index]
    return index + 1


@damage("nul_bytes", "in_place", (CODEX,), severity="error")
def nul_first(log, rng):
    """A run of NUL bytes before the first record. Codex takes the line for no beginning of a session."""
    log.lines.insert(0, bytes(rng.randint(1, 600)))
    return 1


@damage("nul_bytes", "in_place", severity="note")
def nul_line(log, rng):
    index = log.call(rng.choice(log.numbers()))
    log.lines.insert(index, bytes(rng.randint(1, 600)))
    return index + 1


@damage("nul_bytes", "in_place", severity="note")
def nul_tail(log, rng):
    log.lines.append(bytes(rng.randint(1, 4096)))
    log.ended = b""
    return len(log.lines)


@damage("byte_order_mark", "in_place")
def byte_order_mark(log, rng):
    log.lines[0] = b"\xef\xbb\xbf" + log.lines[0]
    return 1


@damage("invalid_utf8", "in_place")
def invalid_utf8(log, rng):
    index = log.text("plover")
    broken = b"answer-1" + bytes([rng.randint(0x80, 0xBF)]) + b"plover"
    log.lines[index] = log.lines[index].replace(b"answer-1 plover", broken)
    return index + 1


@damage("lone_surrogate", "in_place")
def lone_surrogate(log, rng):
    index = log.text("plover")
    half = b"\\ud" + f"{rng.randint(0x800, 0xFFF):03x}".encode()
    log.lines[index] = log.lines[index].replace(b"answer-1 plover", b"answer-1 " + half + b" plover")
    return index + 1


@damage("torn_record", "in_place", severity="note")
def torn_end(log, rng):
    """The process died while it wrote a further record."""
    record = torn(log.lines[-1], rng)
    log.lines.append(record)
    log.ended = b""
    return len(log.lines)


@damage("torn_record", "in_place", (CLAUDE, CODEX))
def spliced_note(log, rng):
    """A note was cut off, and a call stands right behind it."""
    index = log.call(rng.choice(log.numbers()))
    note = log.first(lambda record: record["type"] in ("queue-operation", "event_msg"))
    log.lines[index] = torn(log.lines[note], rng) + log.lines[index]
    return index + 1


@damage("torn_record", "in_place")
def spliced_result(log, rng):
    """The beginning of a result, and the same result right behind it, which is whole."""
    index = log.result(rng.choice(log.numbers()))
    log.lines[index] = torn(log.lines[index], rng) + log.lines[index]
    return index + 1


@damage("torn_record", "in_place")
def spliced_answer(log, rng):
    """An answer was cut off, and the next prompt stands right behind it: the answer is gone for good."""
    index, prompt = log.text("plover"), log.text("bittern")
    fragment = torn(log.lines[index], rng, most=60)
    log.lines[prompt] = fragment + log.lines[prompt]
    del log.lines[index]
    return {"line": prompt, "lost": ["answer-1"]}


@damage("joined_records", "append", (CLAUDE,))
@damage("joined_records", "none", (CODEX, COPILOT, QWEN))
def joined(log, rng):
    """A call and its result on one line."""
    number = rng.choice([1, 5])
    call, result = log.call(number), log.result(number)
    log.lines[call] += log.lines.pop(result)
    return call + 1


@damage("joined_records", "append", (CLAUDE,))
def joined_side(log, rng):
    """The result of a parallel call, which nothing follows, on the line of the record before it."""
    result = log.result(2)
    log.lines[result - 1] += log.lines.pop(result)
    return result


@damage("raw_newline", "in_place")
def raw_newline(log, rng):
    index = log.text("plover")
    log.lines[index] = log.lines[index].replace(b"answer-1 plover", b"answer-1\nplover")
    return index + 1


@damage("repeated_record", "in_place")
def repeated_record(log, rng):
    index = log.result(rng.choice(log.numbers()))
    log.lines.insert(index + 1, log.lines[index])
    return index + 2


@damage("long_record", "none", (CODEX,))
def long_record(log, rng):
    """A note of more than 64 MiB, which no doctor can hold."""
    index = rng.randrange(2, len(log.lines) - 2)
    payload = {"type": "agent_message", "message": "x" * (64 << 20)}
    record = log.record(index) | {"type": "event_msg", "payload": payload}
    log.lines.insert(index, json.dumps(record, **FORM).encode())
    log.renumber(index)
    return index + 1


@damage("stray_content", "none")
def stray_message(log, rng):
    """A message as a request has it, without the record around it, which no client writes."""
    index = log.text(rng.choice(["bittern", "curlew", "dunlin"]))
    log.lines.insert(index, json.dumps({"role": "user", "content": "heron"}, **FORM).encode())
    return index + 1


@damage("stray_content", "none")
def stray_body(log, rng):
    """The body of a request behind the last record."""
    body = {"model": "fixture", "messages": [{"role": "user", "content": "heron"}]}
    log.lines.append(json.dumps(body, **FORM).encode())
    return len(log.lines)


@damage("invalid_record", "none", (COPILOT,), severity="error")
def nameless_message(log, rng):
    """An answer has lost its id: the client does not load a file with an event that breaks its form."""
    index = log.text("plover")
    record = log.record(index)
    del record["data"]["messageId"]
    log.put(index, record)
    return index + 1


@damage("repeated_record", "none", (COPILOT,), severity="error")
def repeated_call(log, rng):
    """A message with a call stands there twice, and is sent twice."""
    index = log.call(rng.choice(log.numbers()))
    log.lines.insert(index + 1, log.lines[index])
    return index + 2


@damage("mixed_sessions", "none", (QWEN,), severity="error")
def mixed_sessions(log, rng):
    """A record names another session."""
    index = log.text(rng.choice(["bittern", "curlew", "dunlin"]))
    log.change(index, sessionId=new_uuid(rng))
    return index + 1


@damage("empty_file", "none")
def empty_file(log, rng):
    log.lines = []
    return {"line": [0, 1], "lost": "all"}


# The links between the records of Claude Code.


@damage("lost_parent", "in_place", (CLAUDE, QWEN))
def lost_parent(log, rng):
    index = log.text(rng.choice(["bittern", "curlew", "dunlin", "quail"]))
    log.change(index, parentUuid=log.fresh_uuid(rng))
    return index + 1


@damage("parent_in_subagent", "in_place", (CLAUDE,))
def parent_in_subagent(log, rng):
    """A prompt follows a record of a sub-agent in the same file, as older versions wrote them."""
    index = log.text("dunlin")
    inner = log.record(log.text("siskin")) | {"uuid": new_uuid(rng), "isSidechain": True, "parentUuid": None}
    said = [{"type": "text", "text": "Within."}]
    inner["message"] = inner["message"] | {"id": "msg_01FixtureSidechain", "content": said}
    log.change(index, parentUuid=inner["uuid"])
    log.lines.insert(index, json.dumps(inner, **FORM).encode())
    return index + 2


@damage("uuid_twice", "in_place", (CLAUDE, QWEN))
def uuid_twice(log, rng):
    """A prompt has the id of the one before, and its own followers name it."""
    older, newer = log.text("bittern"), log.text("curlew")
    own, taken = log.record(newer)["uuid"], log.record(older)["uuid"]
    for index, record in log.records():
        if record.get("parentUuid") == own:
            log.change(index, parentUuid=taken)
    log.change(newer, uuid=taken)
    return newer + 1


@damage("parent_circle", "in_place", (CLAUDE, QWEN))
def parent_circle(log, rng):
    """The first prompt follows a record behind it."""
    first = log.text("avocet")
    log.change(first, parentUuid=log.record(log.text(rng.choice(["plover", "quail", "siskin"])))["uuid"])
    return {"line": [first + 1]}


@damage("fork", "none", (CLAUDE,), also=["rewound"])
def fork(log, rng):
    """A prompt and its answer beside those of the story: of a second process, or after a step back (`rewound`)."""
    base = log.record(log.text("siskin"))
    prompt = log.record(log.text("dunlin")) | {"uuid": new_uuid(rng), "parentUuid": base["uuid"]}
    prompt["message"] = prompt["message"] | {"content": "Please do turn-8. heron"}
    answer = log.record(log.text("turnstone")) | {"uuid": new_uuid(rng), "parentUuid": prompt["uuid"]}
    said = [{"type": "text", "text": "answer-8 whinchat"}]
    answer["message"] = answer["message"] | {"id": "msg_01FixtureOtherProcess", "content": said}
    lines = [index + 1 for index, record in log.records() if record.get("parentUuid") == base["uuid"]]
    log.lines += [json.dumps(record, **FORM).encode() for record in (prompt, answer)]
    return {"line": [*lines, len(log.lines) - 1], "lost": "any"}


@damage("rewound", "none", (CLAUDE,), severity="note")
def rewound(log, rng):
    """The user wrote another prompt, went back behind it, and went on with the story."""
    index = log.text("dunlin")
    record = log.record(index) | {"uuid": new_uuid(rng)}
    record["message"] = record["message"] | {"content": "Please do turn-8. heron"}
    log.lines.insert(index, json.dumps(record, **FORM).encode())
    return {"line": [index + 1, index + 2]}


@damage("hidden_result", "none", (CLAUDE,), since=(2, 1, 300))
def hidden_result(log, rng):
    """A second process wrote "interrupted" for a call that still ran; then the first wrote the real result."""
    result = log.result(5)
    real = log.record(result)
    other = real | {"uuid": new_uuid(rng)}
    block = other["message"]["content"][0] | {"content": INTERRUPTED, "is_error": True}
    other["message"] = {"role": "user", "content": [block]}
    other["toolUseResult"] = f"Error: {INTERRUPTED}"
    # 2.1.332 sends the first result in the file, whatever follows which; 2.1.42 sends the one that is followed.
    log.lines.insert(result, json.dumps(other, **FORM).encode())
    return {"line": [result + 1, result + 2], "lost": ["result-5"]}


# Calls and results.


@damage("open_call", "none", (CLAUDE, COPILOT, QWEN))
@damage("unanswered", "append", (CODEX,))
def open_at_end(log, rng):
    """The process was killed while a tool ran."""
    call = log.call(5)
    del log.lines[call + 1 :]
    return {"line": call + 1, "lost": ["result-5", "answer-4"]}


@damage("unanswered", "append", (CLAUDE,))
@damage("unanswered", "none", (CODEX, COPILOT, QWEN))
def open_inside(log, rng):
    """The result of a call is not there, and what followed it follows the call."""
    call, result = log.call(1), log.result(1)
    unlink(log, result)
    return {"line": call + 1, "lost": ["result-1"]}


@damage("unanswered", "append", (CLAUDE,))
@damage("unanswered", "none", (CODEX, COPILOT, QWEN))
def spoken_over(log, rng):
    """The user wrote a prompt over an open call: its result and the answer are not there."""
    call = log.call(1)
    unlink(log, log.result(1))
    unlink(log, log.text("plover"))
    return {"line": call + 1, "lost": ["result-1", "answer-1"]}


@damage("orphan", "in_place")
def orphan(log, rng):
    """A result whose call is not there."""
    number = rng.choice([1, 5])
    unlink(log, log.call(number))
    result = log.result(number)
    # Its words come back as a text, not as the result of a call.
    return {"line": result + 1, "lost": [f"result-{number}"], "words": [{1: "kestrel", 5: "ouzel"}[number]]}


@damage("duplicate", ["in_place", "none"], (CODEX,))
def other_output(log, rng):
    """A second output of a call, in other words."""
    number = rng.choice(log.numbers())
    result = log.result(number)
    record = log.record(result)
    record["payload"] = record["payload"] | {"id": "fco_fixture_twice", "output": "aborted"}
    log.lines.insert(result + 1, json.dumps(record, **FORM).encode())
    log.renumber(result + 1)
    return {"line": [result + 1, result + 2]}


@damage("duplicate", "none", (CLAUDE,))
def other_result(log, rng):
    """A second process has answered a call too, in other words and later."""
    result = log.result(5)
    other = log.record(result) | {"uuid": new_uuid(rng)}
    other["message"] = {"role": "user", "content": [other["message"]["content"][0] | {"content": "heron"}]}
    log.lines.insert(result + 1, json.dumps(other, **FORM).encode())
    return {"line": [result + 1, result + 2]}


@damage("duplicate_call", "none", (CODEX,), also=["duplicate", "unanswered"])
def call_twice(log, rng):
    """A second call has the id of one before it."""
    call = log.call(rng.choice(log.numbers()))
    record = log.record(call)
    record["payload"] = record["payload"] | {"id": "fc_fixture_twice"}
    log.lines.insert(call + 1, json.dumps(record, **FORM).encode())
    log.renumber(call + 1)
    return {"line": [call + 1, call + 2, call + 3], "lost": "any"}


@damage("no_id", ["in_place", "none"], (CODEX,))
def nameless_output(log, rng):
    """An output has lost the id of its call."""
    result = log.result(1)
    record = log.record(result)
    del record["payload"]["call_id"]
    log.put(result, record)
    return {"line": result + 1, "lost": ["result-1"], "words": ["kestrel"]}


@damage("field", "none", (CODEX,))
def output_of_another_kind(log, rng):
    result = log.result(1)
    record = log.record(result)
    record["payload"] = record["payload"] | {"type": "custom_tool_call_output"}
    log.put(result, record)
    return {"line": result + 1, "lost": ["result-1"]}


@damage("misplaced", "none", (CLAUDE,))
def late_result(log, rng):
    """The result of a call stands behind the next turn of the user and the model."""
    call, result, last = log.call(1), log.result(1), log.text("quail")
    follow(log, result, call)
    follow(log, last, result)
    log.change(result, parentUuid=log.record(last)["uuid"])
    log.lines.insert(last, log.lines.pop(result))
    return last + 1


@damage("misplaced", "none", (CLAUDE,), severity="note")
def spoken_before_result(log, rng):
    """A prompt that the user wrote while a tool ran stands before its result. Each version puts the result in its place."""
    result = log.result(1)
    record = log.record(result)
    prompt = log.record(log.text("bittern")) | {"uuid": new_uuid(rng), "parentUuid": record["parentUuid"]}
    prompt["message"] = prompt["message"] | {"content": "Please do turn-8. heron"}
    log.change(result, parentUuid=prompt["uuid"])
    log.lines.insert(result, json.dumps(prompt, **FORM).encode())
    return result + 2


@damage("bad_id", "none", (CLAUDE, CODEX))
def refused_id(log, rng):
    """A call has an id that its provider refuses, and its result has the same."""
    number = rng.choice(log.numbers())
    call, result = log.call(number), log.result(number)
    [own] = calls_of(log.client, log.record(call))
    # Of OpenAI's rule the length counts, of Anthropic's the letters.
    refused = own.ljust(65, "x") if log.client == CODEX else own.replace("_", ":")
    for index in (call, result):
        log.lines[index] = log.lines[index].replace(f'"{own}"'.encode(), f'"{refused}"'.encode())
    # The story knows the result by the id of before.
    return {"line": call + 1, "lost": [f"result-{number}"]}


@damage("server_half", "none", (CLAUDE,))
def server_half(log, rng):
    """The provider searched the web, and its result is not there."""
    answer = log.text("plover")
    record = log.record(answer)
    half = record | {"uuid": new_uuid(rng)}
    block = {"type": "server_tool_use", "id": "srvtoolu_01Fixture", "name": "web_search", "input": {"query": "heron"}}
    half["message"] = record["message"] | {"content": [block]}
    log.change(answer, parentUuid=half["uuid"])
    log.lines.insert(answer, json.dumps(half, **FORM).encode())
    return answer + 1


@damage("foreign_thinking", "none", (CLAUDE,))
def foreign_thinking(log, rng):
    """An answer of another provider's model begins with thinking that only that provider can read."""
    answer = log.text("plover")
    record = log.record(answer)
    thought = record | {"uuid": new_uuid(rng)}
    block = {"type": "thinking", "thinking": "Hm.", "signature": "gAAAAAB" + "x" * 200}
    thought["message"] = record["message"] | {"content": [block]}
    log.change(answer, parentUuid=thought["uuid"])
    log.lines.insert(answer, json.dumps(thought, **FORM).encode())
    return answer + 1


@damage("malformed_call", ["in_place", "append", "none"], (CLAUDE,))
def cut_input(log, rng):
    """The input of a call is a text that was cut, and no object."""
    index = log.call(rng.choice(log.numbers()))
    record = log.record(index)
    block = record["message"]["content"][-1]
    block["input"] = json.dumps(block["input"])[: rng.randint(8, 24)]
    log.put(index, record)
    return index + 1


@damage("malformed_call", ["in_place", "append", "none"], (CODEX,), name="cut_input", may_be_silent=True)
def cut_arguments(log, rng):
    """The arguments of a call were cut. The client sends them as they are, and OpenAI takes them so."""
    index = log.call(rng.choice(log.numbers()))
    record = log.record(index)
    record["payload"]["arguments"] = record["payload"]["arguments"][: rng.randint(3, 12)]
    log.put(index, record)
    return index + 1


# The records of Codex.


@damage("ordinal_missing", "append", (CODEX,))
def ordinal_missing(log, rng):
    """A record without its number at the end, as another program would write it."""
    record = log.record(len(log.lines) - 1)
    del record["ordinal"]
    log.lines[-1] = json.dumps(record, **FORM).encode()
    return len(log.lines)


@damage("ordinal_missing", "none", (CODEX,), severity="note")
def ordinal_missing_inside(log, rng):
    """A record without its number, and one with a number behind it."""
    index = rng.randrange(2, len(log.lines) - 2)
    record = log.record(index)
    del record["ordinal"]
    log.put(index, record)
    return index + 1


@damage("last_ordinal", "none", (CODEX,), severity="error")
def last_ordinal(log, rng):
    """The last record has the highest number that there is."""
    log.change(len(log.lines) - 1, ordinal=(1 << 64) - 1)
    return len(log.lines)


@damage("ordinal_twice", "none", (CODEX,))
def ordinal_twice(log, rng):
    index = rng.randrange(2, len(log.lines) - 2)
    log.change(index, ordinal=index - 1)
    return {"line": [index, index + 1]}


@damage("session_meta_missing", "none", (CODEX, COPILOT))
def session_meta_missing(log, rng):
    del log.lines[0]
    return 1


def torn(line, rng, most=None):
    """The beginning of a record, cut inside of it."""
    return line[: rng.randint(12, min(most or len(line) - 2, len(line) - 2))]


def unlink(log, index):
    """Takes a record out, and its followers follow what it followed."""
    gone = log.record(index)
    del log.lines[index]
    if log.client == CODEX:
        drop_event(log, gone)
        log.renumber(0)
        return
    own, parent = ("id", "parentId") if log.client == COPILOT else ("uuid", "parentUuid")
    for other, record in log.records():
        if record.get(parent) == gone[own]:
            log.change(other, **{parent: gone[parent]})


def follow(log, old, new):
    """What follows a record of Claude Code follows another one."""
    old, new = log.record(old)["uuid"], log.record(new)["uuid"]
    for index, record in log.records():
        if record.get("parentUuid") == old:
            log.change(index, parentUuid=new)


def drop_event(log, gone):
    """Takes out the event of a call whose item went: a client that lost one has lost both."""
    for call in calls_of(CODEX, gone):
        for index, record in reversed(log.records()):
            if record["type"] == "event_msg" and record["payload"].get("item", {}).get("id") == call:
                del log.lines[index]
