"""Anthropic Messages: a call is answered in the next user turn, results first."""

import re

from .reply import HALVES, WORDS, Refusal, named_events, whole

PATH = re.compile(r"/v1/messages(/count_tokens)?")


def blocks_of(message):
    """The blocks of a message; a string is one text block."""
    content = message.get("content") or []
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def turns_of(messages):
    """Consecutive messages of one role are one turn: (role, blocks, index of the last message)."""
    turns = []
    for index, message in enumerate(messages):
        if turns and turns[-1][0] == message["role"]:
            turns[-1] = (message["role"], turns[-1][1] + blocks_of(message), index)
        else:
            turns.append((message["role"], list(blocks_of(message)), index))
    return turns


def check(body):
    """Raises where Anthropic would refuse the tool calls of a body."""
    messages = body.get("messages") or []
    if not messages:
        raise Refusal("messages: at least one message is required")
    if messages[0].get("role") != "user":
        raise Refusal('messages: first message must use the "user" role')
    before = []
    turns = turns_of(messages)
    for at, (role, blocks, index) in enumerate(turns):
        calls = [block["id"] for block in blocks if block.get("type") == "tool_use"]
        if role == "user":
            check_results(blocks, before, index)
        before = calls if role == "assistant" else []
        following = turns[at + 1][1] if at + 1 < len(turns) and turns[at + 1][0] == "user" else []
        check_calls(calls, following, index)


def check_results(blocks, calls, index):
    """Each result has its call in the turn before, and is the only one for it."""
    results = [block.get("tool_use_id") for block in blocks if block.get("type") == "tool_result"]
    for id_ in results:
        if id_ not in calls:
            raise Refusal(
                f"messages.{index}.content.0: unexpected `tool_use_id` found in `tool_result` blocks: {id_}. "
                "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
        if results.count(id_) > 1:
            raise Refusal(
                f"messages.{index}.content.0: each tool_use must have a single result. "
                f"Found multiple `tool_result` blocks with id: {id_}"
            )


def check_calls(calls, following, index):
    """Each call is answered at the front of the following user turn."""
    answered = []
    for block in following:
        if block.get("type") != "tool_result":
            break
        answered.append(block.get("tool_use_id"))
    missing = [id_ for id_ in calls if id_ not in answered]
    if missing:
        raise Refusal(
            f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block "
            "in the next message."
        )


def reply(target, body):
    """A message, its events, or a count."""
    if "/count_tokens" in target:
        return whole({"input_tokens": 12})
    model = body.get("model")
    return named_events(events(model)) if body.get("stream") else whole(message(model))


def message(model):
    return {
        "id": "msg_00000001",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [{"type": "text", "text": WORDS}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 12, "output_tokens": 4},
    }


def events(model):
    yield {"type": "message_start", "message": message(model) | {"content": [], "stop_reason": None}}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for half in HALVES:
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": half}}
    yield {"type": "content_block_stop", "index": 0}
    delta = {"stop_reason": "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 4}}
    yield {"type": "message_stop"}


def error(status, words, _target):
    """A refusal in Anthropic's shape."""
    kind = "not_found_error" if status == 404 else "invalid_request_error"
    return {"type": "error", "error": {"type": kind, "message": words}, "request_id": "req_00000001"}
