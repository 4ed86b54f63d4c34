"""A session file as a list of lines, which a damage changes. It knows where the story's parts stand."""

import json
import uuid

FORM = {"ensure_ascii": False, "separators": (",", ":")}
NEVER = "5e551001-dead-4000-8000-"


class Lines:
    """The lines of a sample, without their line feeds."""

    def __init__(self, client, data):
        self.client = client
        self.lines = data.split(b"\n")
        assert self.lines.pop() == b"", "a sample ends with a line feed"
        self.ended = b"\n"

    def data(self):
        return b"\n".join(self.lines) + self.ended if self.lines else b""

    def record(self, index):
        return json.loads(self.lines[index])

    def put(self, index, record):
        self.lines[index] = json.dumps(record, **FORM).encode()

    def change(self, index, **members):
        self.put(index, self.record(index) | members)

    def records(self):
        return [(index, json.loads(line)) for index, line in enumerate(self.lines)]

    def first(self, holds):
        return next(index for index, record in self.records() if holds(record))

    # Claude Code and Codex name the same things differently.

    def call(self, number):
        """The line of a call, by its number in the story."""
        return self.first(lambda record: any(has_number(call, number) for call in calls_of(self.client, record)))

    def result(self, number):
        return self.first(lambda record: any(has_number(call, number) for call in answered_by(self.client, record)))

    def text(self, word):
        """The line of the message that says a word; not of a prompt's copy in a queue."""
        return self.first(lambda record: is_message(self.client, record) and word in json.dumps(record))

    def messages(self):
        """The lines of the conversation."""
        return [index for index, record in self.records() if is_message(self.client, record)]

    def numbers(self):
        """The numbers of calls that a damage may take: not the second, which Claude Code 2.1.42 never sends."""
        return [1, 3, 5]

    def fresh_uuid(self, rng):
        return NEVER + f"{rng.getrandbits(48):012x}"

    def renumber(self, start):
        """Gives the records from `start` on the ordinals that follow."""
        if self.client != "codex":
            return
        for index in range(start, len(self.lines)):
            self.change(index, ordinal=index)


def has_number(call, number):
    return call.endswith(f"Fixture{number:015d}") or call.endswith(f"Fixture{number:016d}")


def is_message(client, record):
    if client == "copilot":
        return record.get("type") in ("user.message", "assistant.message")
    if client == "qwen-code":
        return record.get("type") in ("user", "assistant")
    if client == "codex":
        return record.get("type") == "response_item"
    return record.get("type") in ("user", "assistant") and not record.get("isSidechain")


def blocks(record):
    content = record.get("message", {}).get("content") if isinstance(record.get("message"), dict) else None
    return content if isinstance(content, list) else []


def parts_of(record, name):
    """The calls or results of a record of Qwen Code."""
    parts = (record.get("message") or {}).get("parts") or []
    return [part[name]["id"] for part in parts if name in part]


def calls_of(client, record):
    if client == "copilot":
        return [call["toolCallId"] for call in record["data"].get("toolRequests") or []]
    if client == "qwen-code":
        return parts_of(record, "functionCall")
    if client == "codex":
        item = record.get("payload", {})
        return [item["call_id"]] if record["type"] == "response_item" and item["type"] == "function_call" else []
    mine = record.get("type") == "assistant"
    return [block["id"] for block in blocks(record) if mine and block.get("type") == "tool_use"]


def answered_by(client, record):
    if client == "copilot":
        return [record["data"]["toolCallId"]] if record["type"] == "tool.execution_complete" else []
    if client == "qwen-code":
        return parts_of(record, "functionResponse")
    if client == "codex":
        item = record.get("payload", {})
        is_output = record["type"] == "response_item" and item["type"] == "function_call_output"
        return [item["call_id"]] if is_output else []
    mine = record.get("type") == "user"
    return [block["tool_use_id"] for block in blocks(record) if mine and block.get("type") == "tool_result"]


def new_uuid(rng):
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))
