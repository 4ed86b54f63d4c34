"""The strict provider, with a model that calls the tool `render` when the user asks for it."""

import hashlib
import json
import urllib.request
from itertools import count

from strict import chat, format_of, messages
from strict.reply import whole
from strict_provider import StrictProvider, judge

ORDER = "Render "
INPUT = {"scene": "harbour"}


class CallingProvider(StrictProvider):
    """Answers a user's message that begins with `ORDER` with a call under a new id, and all others with words."""

    def __init__(self):
        super().__init__()
        self.numbers = count()

    def judge(self, target, body):
        """Returns the status and the answer to one request."""
        status, reply = judge(target, body)
        format_ = format_of(target.split("?")[0])
        if status != 200 or format_ not in CALLS or not is_order(json.loads(body)["messages"][-1]):
            return status, reply
        # 24 characters, as random as a provider's: a shorter id would not identify its call.
        letters = hashlib.sha256(str(next(self.numbers)).encode()).hexdigest()[:24]
        return 200, whole(CALLS[format_](letters))


def order(base, key):
    """Lets the model call the tool, through the proxy. Returns the id of the call, and its owner."""
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": f"{ORDER}a film."}]}
    headers = {"x-api-key": key, "content-type": "application/json", "x-antiphon-session": "my-session"}
    request = urllib.request.Request(f"{base}/anthropic/v1/messages", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["content"][0]["id"], answer.headers["x-antiphon-owner"]


def is_order(message):
    """Returns whether the user orders a film in this message."""
    texts = [block.get("text", "") for block in messages.blocks_of(message)]
    return message["role"] == "user" and any(text.startswith(ORDER) for text in texts)


def messages_call(letters):
    call = {"type": "tool_use", "id": f"toolu_{letters}", "name": "render", "input": INPUT}
    return messages.message("m") | {"content": [call], "stop_reason": "tool_use"}


def chat_call(letters):
    function = {"name": "render", "arguments": json.dumps(INPUT)}
    call = {"id": f"call_{letters}", "type": "function", "function": function}
    answer = chat.completion("m")
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return answer | {"choices": [answer["choices"][0] | {"message": message, "finish_reason": "tool_calls"}]}


CALLS = {messages: messages_call, chat: chat_call}
