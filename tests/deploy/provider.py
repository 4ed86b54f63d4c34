"""A provider that answers Messages requests, with words or with a tool call. It refuses one key, and too many tokens."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

REFUSED_KEY = "sk-refused"
TAKEN_KEY = "sk-taken"
USAGE = {"input_tokens": 30, "output_tokens": 4}
# More tokens than this prompt leaves, and the words that say so: a row of src/refusals/rows.toml.
TOO_MANY_TOKENS = 21333
REFUSAL = (
    f"input length and `max_tokens` exceed context limit: 190000 + {TOO_MANY_TOKENS} > 200000, "
    "decrease input length or `max_tokens` and try again"
)


def message(content, stop):
    """A whole answer."""
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content,
            "stop_reason": stop, "stop_sequence": None, "usage": USAGE}


def stream():
    """The events of a short answer."""
    events = [
        {"type": "message_start", "message": message([], None)},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hello"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": USAGE},
        {"type": "message_stop"},
    ]
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        """Answers one request."""
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.headers.get("x-api-key") == REFUSED_KEY:
            error = {"type": "authentication_error", "message": "invalid x-api-key"}
            return self.reply(401, {"type": "error", "error": error})
        try:
            asked = json.loads(body)
        except ValueError:
            error = {"type": "invalid_request_error", "message": "no JSON"}
            return self.reply(400, {"type": "error", "error": error})
        if asked.get("max_tokens") == TOO_MANY_TOKENS:
            error = {"type": "invalid_request_error", "message": REFUSAL}
            return self.reply(400, {"type": "error", "error": error})
        if asked.get("stream"):
            return self.send(200, "text/event-stream", stream())
        if "tools" in asked:
            call = {"type": "tool_use", "id": "toolu_01Fresh", "name": "run", "input": {}}
            return self.reply(200, message([call], "tool_use"))
        return self.reply(200, message([{"type": "text", "text": "hello"}], "end_turn"))

    def reply(self, status, answer):
        """An answer in JSON."""
        self.send(status, "application/json", json.dumps(answer).encode())

    def send(self, status, kind, body):
        """An answer."""
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Nothing: the script tells what it sees."""


class Provider:
    """The provider, as long as the block lasts."""

    def __enter__(self):
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
