"""Answers whose connection breaks, as the frames that are sent before it does."""

import json

from . import chat, gemini, messages, responses
from .reply import HALVES, WORDS

# Before the head; after it; in the text; in the arguments of a call; before the last event.
PLACES = ("no head", "head", "text", "arguments", "last event")
# An end of the body that is no end of the answer: the connection itself does not break.
CLEAN = "clean end"

ARGUMENTS = '{"path": "a.t'


def cut(reply, place, format_):
    """The frames of an answer up to a place; nothing to be sent at all is None."""
    if place == "no head":
        return None
    if place == "head":
        return []
    if not reply.streamed:
        return [reply.frames[0][: len(reply.frames[0]) // 2]]
    if place == "arguments":
        return call_frames(format_)
    if place == "last event":
        return reply.frames[:-1]
    return reply.frames[: first_text(reply.frames) + 1]


def first_text(frames):
    return next(number for number, frame in enumerate(frames) if f'"{HALVES[0]}"' in frame)


def call_frames(format_):
    """A call that is still being written."""
    return {messages: messages_call, chat: chat_call, responses: responses_call, gemini: gemini_call}[format_]()


def named(*events):
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]


def messages_call():
    message = messages.message("model") | {"content": [], "stop_reason": None}
    call = {"type": "tool_use", "id": "toolu_cut", "name": "read", "input": {}}
    delta = {"type": "input_json_delta", "partial_json": ARGUMENTS}
    return named(
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": call},
        {"type": "content_block_delta", "index": 0, "delta": delta},
    )


def chat_call():
    head = next(iter(chat.chunks("model")))
    named_call = {"index": 0, "id": "call_cut", "type": "function", "function": {"name": "read", "arguments": ""}}
    deltas = [{"tool_calls": [named_call]}, {"tool_calls": [{"index": 0, "function": {"arguments": ARGUMENTS}}]}]
    pieces = [head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    return [f"data: {json.dumps(piece)}\n\n" for piece in [head, *pieces]]


def responses_call():
    item = {"type": "function_call", "id": "fc_cut", "call_id": "call_cut", "name": "read", "arguments": ""}
    place = {"item_id": "fc_cut", "output_index": 0}
    events = [
        {"type": "response.created", "response": responses.response("model", "in_progress")},
        {"type": "response.output_item.added", "output_index": 0, "item": item | {"status": "in_progress"}},
        {"type": "response.function_call_arguments.delta", **place, "delta": ARGUMENTS},
    ]
    return named(*(event | {"sequence_number": number} for number, event in enumerate(events)))


def gemini_call():
    piece = gemini.piece("model", WORDS, done=False)
    piece["candidates"][0]["content"]["parts"] = [{"functionCall": {"name": "read", "args": {"path": "a.txt"}}}]
    text = f"data: {json.dumps(piece)}\r\n\r\n"
    return [text[: text.index("a.txt")]]
