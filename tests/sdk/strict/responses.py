"""OpenAI Responses: calls and outputs pair by kind and `call_id` over the whole input, wherever they stand.

Where a part of the history is held by the server, an output's call may be there.
"""

import re

from .reply import HALVES, WORDS, Refusal, named_events, whole

PATH = re.compile(r"/v1/responses(/input_tokens)?")

# Each kind of call, and the kinds of output that answer it.
OUTPUTS = {
    "function_call": ("function_call_output",),
    "custom_tool_call": ("custom_tool_call_output",),
    "local_shell_call": ("local_shell_call_output", "function_call_output"),
    "shell_call": ("shell_call_output",),
    "apply_patch_call": ("apply_patch_call_output",),
    "computer_call": ("computer_call_output",),
    "tool_search_call": ("tool_search_output",),
}
OUTPUT_KINDS = {kind for kinds in OUTPUTS.values() for kind in kinds}
ID_PREFIXES = {"function_call": "fc", "custom_tool_call": "ctc", "reasoning": "rs", "message": "msg"}


def kind_of(item):
    """The kind of an item; one without is a message."""
    return item.get("type") or "message"


def key_of(item):
    """What an item pairs by; nothing for a tool search that the server runs itself."""
    return None if item.get("execution") == "server" else item.get("call_id") or None


def in_words(kind):
    return kind.replace("_", " ")


def held_by_server(body, items):
    """Whether calls may stand where this request does not show them."""
    named = body.get("previous_response_id") or body.get("conversation")
    return bool(named) or any(kind_of(item) in ("item_reference", "compaction") for item in items)


def check(body):
    """Raises where OpenAI would refuse the tool calls of a body."""
    items = body.get("input") or []
    if isinstance(items, str):
        return
    check_ids(items)
    check_reasoning(items)
    check_calls(items)
    if not held_by_server(body, items):
        check_outputs(items)


def check_ids(items):
    """An item's own id begins as its kind does, and is the only one of its like."""
    seen = set()
    for index, item in enumerate(items):
        id_, prefix = item.get("id"), ID_PREFIXES.get(kind_of(item), "")
        if not id_ or kind_of(item) == "item_reference":
            continue
        if not id_.startswith(prefix):
            raise Refusal(f"Invalid 'input[{index}].id': '{id_}'. Expected an ID that begins with '{prefix}'.")
        if id_ in seen:
            raise Refusal(
                f"Duplicate item found with id {id_}. Remove duplicate items from your input and try again."
            )
        seen.add(id_)


def check_reasoning(items):
    """Something of the model's follows each reasoning item."""
    for item, following in zip(items, [*items[1:], None]):
        ends = following is None or kind_of(following) in OUTPUT_KINDS
        spoken_to = following and kind_of(following) == "message" and following.get("role") != "assistant"
        if kind_of(item) == "reasoning" and (ends or spoken_to):
            id_ = item.get("id")
            raise Refusal(f"Item '{id_}' of type 'reasoning' was provided without its required following item.")


def check_calls(items):
    """Each call has an output of its kind."""
    outputs = {(kind_of(item), key_of(item)) for item in items}
    for item in items:
        kind, key = kind_of(item), key_of(item)
        if key and kind in OUTPUTS and not any((output, key) in outputs for output in OUTPUTS[kind]):
            raise Refusal(f"No tool output found for {in_words(kind)} {key}.")


def check_outputs(items):
    """Each output has a call of its kind."""
    answerable = {(output, key_of(item)) for item in items for output in OUTPUTS.get(kind_of(item), ())}
    for item in items:
        kind, key = kind_of(item), key_of(item)
        if key and kind in OUTPUT_KINDS and (kind, key) not in answerable:
            raise Refusal(f"No tool call found for {in_words(kind)} with call_id {key}.")


def reply(target, body):
    """A response, its events, or a count."""
    if "/input_tokens" in target:
        return whole({"object": "response.input_tokens", "input_tokens": 12})
    model = body.get("model")
    return named_events(events(model)) if body.get("stream") else whole(response(model))


def text_part(text):
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def message(status, content):
    return {"id": "msg_00000001", "type": "message", "status": status, "role": "assistant", "content": content}


def response(model, status="completed"):
    done = status == "completed"
    usage = {
        "input_tokens": 12,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 16,
    }
    return {
        "id": "resp_00000001",
        "object": "response",
        "created_at": 1700000000,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": model,
        "output": [message("completed", [text_part(WORDS)])] if done else [],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": usage if done else None,
    }


def events(model):
    """The whole sequence, numbered."""
    return [event | {"sequence_number": number} for number, event in enumerate(unnumbered_events(model))]


def unnumbered_events(model):
    item = {"item_id": "msg_00000001", "output_index": 0, "content_index": 0}
    yield {"type": "response.created", "response": response(model, "in_progress")}
    yield {"type": "response.in_progress", "response": response(model, "in_progress")}
    yield {"type": "response.output_item.added", "output_index": 0, "item": message("in_progress", [])}
    yield {"type": "response.content_part.added", **item, "part": text_part("")}
    for half in HALVES:
        yield {"type": "response.output_text.delta", **item, "delta": half, "logprobs": []}
    yield {"type": "response.output_text.done", **item, "text": WORDS, "logprobs": []}
    yield {"type": "response.content_part.done", **item, "part": text_part(WORDS)}
    yield {"type": "response.output_item.done", "output_index": 0, "item": message("completed", [text_part(WORDS)])}
    yield {"type": "response.completed", "response": response(model)}


def error(status, words, _target):
    """A refusal in OpenAI's shape."""
    kind = "not_found_error" if status == 404 else "invalid_request_error"
    return {"error": {"message": words, "type": kind, "param": "input", "code": None}}
