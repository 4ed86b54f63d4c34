"""Gemini generateContent: a turn of calls is answered in the very next content, by as many responses."""

import json
import re
from collections import Counter

from .reply import EVENTS, HALVES, JSON, WORDS, Refusal, Reply, whole

PATH = re.compile(r"/v1(?:beta)?/models/([^/:]+):(generateContent|streamGenerateContent|countTokens)")

CALL_TURN = (
    "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
)
RESPONSE_TURN = "Please ensure that function response turn comes immediately after a function call turn."
COUNT = (
    "Please ensure that the number of function response parts is equal to the number of function call parts "
    "of the function call turn."
)


def parts_of(content, camel, snake):
    """The parts of one kind, in either spelling."""
    found = (part.get(camel) or part.get(snake) for part in content.get("parts") or [])
    return [part for part in found if part is not None]


def calls_of(content):
    return parts_of(content, "functionCall", "function_call") if content.get("role") == "model" else []


def responses_of(content):
    return parts_of(content, "functionResponse", "function_response") if content.get("role") != "model" else []


def check(body):
    """Raises where Gemini would refuse the function calls of a body."""
    contents = (body.get("generateContentRequest") or body).get("contents") or []
    before = None
    for content in contents:
        calls = calls_of(before) if before else []
        if calls or responses_of(content):
            check_responses(calls, responses_of(content))
        if calls_of(content) and (before is None or before.get("role") == "model"):
            raise Refusal(CALL_TURN)
        before = content


def check_responses(calls, responses):
    """As many responses as calls; where ids are given, each response carries the id of a call."""
    if not calls:
        raise Refusal(f"{RESPONSE_TURN} Got function response with name '{responses[0].get('name')}'.")
    if len(calls) != len(responses):
        raise Refusal(COUNT)
    open_ids = Counter(call["id"] for call in calls if call.get("id"))
    for response in responses:
        if open_ids and response.get("id") and not open_ids[response["id"]]:
            raise Refusal(f"{RESPONSE_TURN} Got function response with name '{response.get('name')}'.")
        open_ids[response.get("id")] -= 1


def as_array(target):
    """Whether this is the stream that comes as one JSON array."""
    return ":streamGenerateContent" in target and "alt=sse" not in target


def reply(target, _body):
    """An answer, its pieces as events or as an array, or a count."""
    model, action = PATH.fullmatch(target.split("?")[0]).groups()
    if action == "countTokens":
        return whole({"totalTokens": 12})
    if action == "generateContent":
        return whole(piece(model, WORDS, done=True))
    pieces = [json.dumps(piece(model, half, done=half == HALVES[-1])) for half in HALVES]
    if as_array(target):
        return Reply(JSON, [f"[{pieces[0]}\n", *(f",\r\n{text}\n" for text in pieces[1:]), "]\n"])
    return Reply(EVENTS, [f"data: {text}\r\n\r\n" for text in pieces])


def piece(model, text, done):
    candidate = {"content": {"parts": [{"text": text}], "role": "model"}, "index": 0}
    return {
        "candidates": [candidate | ({"finishReason": "STOP"} if done else {})],
        "usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 4, "totalTokenCount": 16},
        "modelVersion": model,
        "responseId": "response-00000001",
    }


def error(status, words, target):
    """A refusal in Google's shape, inside an array where the answer would have been one."""
    name = "NOT_FOUND" if status == 404 else "INVALID_ARGUMENT"
    refusal = {"error": {"code": status, "message": words, "status": name}}
    return [refusal] if as_array(target) else refusal
