"""A strict check of calls and results in a request, as the two providers make it, and what a request holds of each.

It shares no code with Antiphon: it reads the JSON of a body, and nothing else.
"""

import json
import re

# Anthropic: `tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'`. OpenAI: `string too long`.
ID = re.compile(r"[a-zA-Z0-9_-]+")
ID_LETTERS_MAX = 64


def blocks_of(message):
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content or [] if isinstance(block, dict)]


def broken_pairs(body):
    """What a provider would refuse, in a sentence; empty if it would accept."""
    if "\\ud8" in json.dumps(body) and has_lone_surrogate(body):
        return "the body is no valid JSON: no low surrogate in string"
    return broken_messages(body["messages"]) if "messages" in body else broken_items(body.get("input") or [])


def has_lone_surrogate(value):
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def joined(messages):
    """Messages as Anthropic sees them: neighbours of one role are one message."""
    turns = []
    for message in messages:
        if message["role"] == "system":
            continue
        if turns and turns[-1][0] == message["role"]:
            turns[-1][1].extend(blocks_of(message))
        else:
            turns.append((message["role"], list(blocks_of(message))))
    return turns


def broken_messages(messages):
    """Each call of a message is answered in the next one, and each result answers a call of the message before."""
    seen, open_calls = set(), []
    for index, (role, blocks) in enumerate(joined(messages)):
        results = [block["tool_use_id"] for block in blocks if block.get("type") == "tool_result"]
        missing = [call for call in open_calls if call not in results]
        if missing:
            return f"messages.{index}: `tool_use` ids were found without `tool_result` blocks after: {missing[0]}"
        for result in results:
            if result not in open_calls:
                return f"messages.{index}: unexpected `tool_use_id` found in `tool_result` blocks: {result}"
        if len(set(results)) != len(results):
            return f"messages.{index}: each tool_use must have a single result"
        open_calls = []
        halves = server_halves(blocks)
        if halves:
            return f"messages.{index}: `web_search` tool use was found without a result block: {halves[0]}"
        for block in blocks if role == "assistant" else []:
            if block.get("type") != "tool_use":
                continue
            if not ID.fullmatch(block["id"]):
                return f"messages.{index}: tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
            if not isinstance(block.get("input"), dict):
                return f"messages.{index}: tool_use.input: Input should be a valid dictionary"
            if block["id"] in seen:
                return f"messages.{index}: `tool_use` ids must be unique: {block['id']}"
            seen.add(block["id"])
            open_calls.append(block["id"])
    return f"`tool_use` ids were found without `tool_result` blocks after: {open_calls[0]}" if open_calls else ""


def server_halves(blocks):
    """The calls of the provider's own tools that have no result in their message."""
    calls = [block["id"] for block in blocks if block.get("type") == "server_tool_use"]
    answered = [block.get("tool_use_id") for block in blocks if block.get("type") != "tool_result"]
    return [call for call in calls if call not in answered]


CALLS = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}


def broken_items(items):
    """Each call has one output behind it, and each output has a call before it."""
    calls, outputs = {}, {}
    for item in items:
        kind = item.get("type")
        if kind in CALLS:
            if len(item["call_id"]) > ID_LETTERS_MAX:
                return f"Invalid 'call_id': string too long. Expected a string with maximum length {ID_LETTERS_MAX}."
            if item["call_id"] in calls:
                return f"duplicate call: {item['call_id']}"
            calls[item["call_id"]] = CALLS[kind]
        elif kind in CALLS.values():
            if "call_id" not in item:
                return "Missing required parameter: 'call_id'."
            if calls.get(item["call_id"]) != kind:
                return f"No tool call found for function call output with call_id {item['call_id']}."
            if item["call_id"] in outputs:
                return f"Duplicate tool output for call_id {item['call_id']}."
            outputs[item["call_id"]] = True
    for call in calls:
        if call not in outputs:
            return f"No tool output found for function call {call}."
    return ""


def parts_of(body):
    """What a request holds: ids of calls, the text of each result by its call, and everything as one text."""
    calls, results = [], {}
    for message in body.get("messages") or []:
        for block in blocks_of(message):
            if block.get("type") == "tool_use":
                calls.append(block["id"])
            elif block.get("type") == "tool_result":
                results[block["tool_use_id"]] = json.dumps(block.get("content"), ensure_ascii=False)
    for item in body.get("input") or []:
        if item.get("type") in CALLS:
            calls.append(item["call_id"])
        elif item.get("type") in CALLS.values():
            results[item.get("call_id")] = json.dumps(item.get("output"), ensure_ascii=False)
    history = body.get("messages") or body.get("input") or []
    return calls, results, json.dumps(history, ensure_ascii=False)
