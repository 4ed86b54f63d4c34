"""A provider that is strict about tool calls, for the SDK script. Standard library only.

It checks what matters most (Messages: a call is answered in the next user turn, results first; Chat Completions: by the
run of tool messages behind it), refuses in the providers' words and shapes, answers everything else, and keeps the
exact bytes of every request. `python strict_provider.py [PORT]` runs it alone.
"""

import json
import sys
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WORDS = "I hear you."


class Refusal(Exception):
    """A 400 in the provider's words."""


@dataclass
class Seen:
    """One request as it arrived."""

    path: str
    headers: dict
    body: bytes
    status: int


def blocks_of(message):
    """The blocks of a Messages message; a string is one text block."""
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


def check_messages(body):
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
        results = [block.get("tool_use_id") for block in blocks if block.get("type") == "tool_result"]
        if role == "user":
            for id_ in results:
                if id_ not in before:
                    raise Refusal(
                        f"messages.{index}.content.0: unexpected `tool_use_id` found in `tool_result` blocks: {id_}. "
                        "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
                    )
                if results.count(id_) > 1:
                    raise Refusal(
                        f"messages.{index}.content.0: each tool_use must have a single result. "
                        f"Found multiple `tool_result` blocks with id: {id_}"
                    )
        before = calls if role == "assistant" else []
        answered = []
        if at + 1 < len(turns) and turns[at + 1][0] == "user":
            for block in turns[at + 1][1]:
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


def check_chat(body):
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


def message(model):
    """A Messages answer."""
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


def message_events(model):
    """The same as events."""
    start = message(model) | {"content": [], "stop_reason": None}
    yield {"type": "message_start", "message": start}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for half in (WORDS[:4], WORDS[4:]):
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": half}}
    yield {"type": "content_block_stop", "index": 0}
    delta = {"stop_reason": "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 4}}
    yield {"type": "message_stop"}


def completion(model):
    """A Chat Completions answer."""
    choice = {"index": 0, "message": {"role": "assistant", "content": WORDS}, "finish_reason": "stop", "logprobs": None}
    return {
        "id": "chatcmpl-00000001",
        "object": "chat.completion",
        "created": 1700000000,
        "model": model,
        "choices": [choice],
        "usage": {"prompt_tokens": 12, "completion_tokens": 4, "total_tokens": 16},
    }


def completion_chunks(model):
    """The same as chunks."""
    head = {"id": "chatcmpl-00000001", "object": "chat.completion.chunk", "created": 1700000000, "model": model}
    deltas = [{"role": "assistant", "content": ""}, {"content": WORDS[:4]}, {"content": WORDS[4:]}]
    for delta in deltas:
        yield head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield head | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        """Judges, answers and records one request."""
        body = self.read_body()
        path = self.path.split("?")[0]
        anthropic = path.startswith("/v1/messages")
        try:
            parsed = json.loads(body)
            if path not in ("/v1/messages", "/v1/messages/count_tokens", "/v1/chat/completions"):
                status, answer = 404, self.error(anthropic, f"Not found: {path}", "not_found_error")
            elif anthropic:
                check_messages(parsed)
                status, answer = 200, message(parsed.get("model"))
            else:
                check_chat(parsed)
                status, answer = 200, completion(parsed.get("model"))
        except (Refusal, ValueError) as refusal:
            parsed, status, answer = {}, 400, self.error(anthropic, str(refusal), "invalid_request_error")
        if status == 200 and path.endswith("count_tokens"):
            answer = {"input_tokens": len(body) // 4}
        self.server.seen.append(Seen(self.path, dict(self.headers), body, status))
        if status == 200 and parsed.get("stream"):
            events = message_events(parsed.get("model")) if anthropic else completion_chunks(parsed.get("model"))
            self.stream(events, anthropic)
        else:
            self.send(status, json.dumps(answer).encode())

    def do_GET(self):
        """Nothing can be read here."""
        self.send(404, json.dumps(self.error(False, f"Not found: {self.path}", "not_found_error")).encode())

    def read_body(self):
        """The body, whether its length was told or it came in chunks."""
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        parts = []
        while length := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(length))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    @staticmethod
    def error(anthropic, words, kind):
        """An error in the provider's shape."""
        if anthropic:
            return {"type": "error", "error": {"type": kind, "message": words}, "request_id": "req_00000001"}
        return {"error": {"message": words, "type": kind, "param": "messages", "code": None}}

    def send(self, status, body, content_type="application/json"):
        """One answer of a known length."""
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, events, anthropic):
        """One answer in chunks, an event each."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        lead = (lambda event: f"event: {event['type']}\n") if anthropic else (lambda event: "")
        texts = [f"{lead(event)}data: {json.dumps(event)}\n\n" for event in events]
        for text in texts if anthropic else [*texts, "data: [DONE]\n\n"]:
            data = text.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_):
        """Silent."""


class StrictProvider(ThreadingHTTPServer):
    """The provider, serving in a thread of its own."""

    daemon_threads = True

    def __init__(self, port=0):
        super().__init__(("127.0.0.1", port), Handler)
        self.seen = []

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()

    def handle_error(self, request, client_address):
        """A client that goes away is its own business."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    @property
    def url(self):
        """Its base URL, without a slash at the end."""
        return f"http://127.0.0.1:{self.server_address[1]}"


if __name__ == "__main__":
    provider = StrictProvider(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    print(provider.url, flush=True)
    provider.serve_forever()
