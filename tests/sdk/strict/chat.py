"""OpenAI Chat Completions: a call is answered by the run of tool messages after it."""

import json
import re

from .reply import EVENTS, HALVES, WORDS, Refusal, Reply, whole

PATH = re.compile(r"/v1/chat/completions")


def check(body):
    """Raises where OpenAI would refuse the tool calls of a body."""
    messages = body.get("messages") or []
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        if message.get("role") == "tool":
            raise Refusal(
                "Invalid parameter: messages with role 'tool' must be a response to a preceeding message "
                "with 'tool_calls'."
            )
        calls = [call["id"] for call in message.get("tool_calls") or []]
        if not calls:
            continue
        run = []
        while at < len(messages) and messages[at].get("role") == "tool":
            run.append(messages[at].get("tool_call_id"))
            at += 1
        check_run(calls, run)


def check_run(calls, run):
    """The run of tool messages answers each call once, and nothing else."""
    missing = [id_ for id_ in calls if id_ not in run]
    if missing:
        raise Refusal(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            "'tool_call_id'. The following tool_call_ids did not have response messages: " + ", ".join(missing)
        )
    if sorted(run) != sorted(calls):
        stranger = next((id_ for id_ in run if id_ not in calls), run[0])
        raise Refusal(
            f"Invalid parameter: 'tool_call_id' of '{stranger}' not found in 'tool_calls' of previous message."
        )


def reply(_target, body):
    """A completion, or its chunks."""
    model = body.get("model")
    if not body.get("stream"):
        return whole(completion(model))
    return Reply(EVENTS, [*(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks(model)), "data: [DONE]\n\n"])


def completion(model):
    choice = {"index": 0, "message": {"role": "assistant", "content": WORDS}, "finish_reason": "stop", "logprobs": None}
    return {
        "id": "chatcmpl-00000001",
        "object": "chat.completion",
        "created": 1700000000,
        "model": model,
        "choices": [choice],
        "usage": {"prompt_tokens": 12, "completion_tokens": 4, "total_tokens": 16},
    }


def chunks(model):
    head = {"id": "chatcmpl-00000001", "object": "chat.completion.chunk", "created": 1700000000, "model": model}
    for delta in ({"role": "assistant", "content": ""}, *({"content": half} for half in HALVES)):
        yield head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield head | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def error(status, words, _target):
    """A refusal in OpenAI's shape."""
    kind = "not_found_error" if status == 404 else "invalid_request_error"
    return {"error": {"message": words, "type": kind, "param": "messages", "code": None}}
