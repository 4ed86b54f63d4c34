"""What every format's answer is made of."""

import json
from dataclasses import dataclass

WORDS = "I hear you."
HALVES = (WORDS[:4], WORDS[4:])

JSON = "application/json"
EVENTS = "text/event-stream; charset=utf-8"


class Refusal(Exception):
    """A 400 in the provider's words."""


@dataclass
class Reply:
    """One whole text, or a stream of frames."""

    content_type: str
    frames: list
    streamed: bool = True


def whole(value):
    """An answer in one piece."""
    return Reply(JSON, [json.dumps(value)], streamed=False)


def named_events(events):
    """A stream whose events are called by their type."""
    return Reply(EVENTS, [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events])
