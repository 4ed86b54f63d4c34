"""A provider that is strict about tool calls, for the SDK script. Standard library only.

It checks what matters most of each format (`strict/`), refuses in the providers' words and shapes, answers everything
else, and keeps the exact bytes of every request. `python strict_provider.py [PORT]` runs it alone.
"""

import json
import sys
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from strict import format_of
from strict.reply import Refusal, whole


@dataclass
class Seen:
    """One request as it arrived."""

    path: str
    headers: dict
    body: bytes
    status: int


def judge(target, body):
    """The status and the answer to one request."""
    path = target.split("?")[0]
    format_ = format_of(path)
    if not format_.PATH.fullmatch(path):
        return 404, whole(format_.error(404, f"Not found: {path}", target))
    try:
        parsed = json.loads(body)
        if not isinstance(parsed, dict):
            raise Refusal("The request body is not a JSON object.")
        format_.check(parsed)
    except (Refusal, ValueError) as refusal:
        return 400, whole(format_.error(400, str(refusal), target))
    return 200, format_.reply(target, parsed)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        """Judges, records and answers one request."""
        body = self.read_body()
        status, reply = judge(self.path, body)
        self.server.seen.append(Seen(self.path, dict(self.headers), body, status))
        self.send(status, reply)

    def do_GET(self):
        """Nothing can be read here."""
        error = format_of(self.path).error(404, f"Not found: {self.path}", self.path)
        self.send(404, whole(error))

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

    def send(self, status, reply):
        """One answer: of a known length, or in chunks, a frame each."""
        frames = [frame.encode() for frame in reply.frames]
        self.send_response(status)
        self.send_header("content-type", reply.content_type)
        if not reply.streamed:
            self.send_header("content-length", str(sum(map(len, frames))))
            self.end_headers()
            self.wfile.write(b"".join(frames))
            return
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for frame in frames:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(frame), frame))
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
