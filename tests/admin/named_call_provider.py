"""A provider whose model calls a tool under the id that the user writes."""

import json
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

KEY = "sk-docs"


class Provider(BaseHTTPRequestHandler):
    """Answers every request with a call whose id is the text of its last message."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        call = {"type": "tool_use", "id": body["messages"][-1]["content"], "name": "render", "input": {}}
        answer = {"id": "msg_1", "type": "message", "role": "assistant", "content": [call], "stop_reason": "tool_use"}
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        """Says nothing: the output is that of the checks."""


@contextmanager
def provider():
    """The provider, running: an object with its `url`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    server.url = f"http://127.0.0.1:{server.server_port}"
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()


def ask(base, call):
    """Lets the model call a tool under this id. Returns the owner."""
    body = json.dumps({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": call}]}).encode()
    headers = {"x-api-key": KEY, "content-type": "application/json", "x-antiphon-session": "my-session"}
    request = urllib.request.Request(f"{base}/anthropic/v1/messages", data=body, headers=headers)
    with urllib.request.urlopen(request) as answer:
        answer.read()
        return answer.headers["x-antiphon-owner"]
