"""A provider that is strict about tool calls, for the SDK script. Standard library only.

It checks what matters most of each format (`strict/`), refuses in the providers' words and shapes, answers everything
else, and keeps the exact bytes of every request. `python strict_provider.py [PORT]` runs it alone.
"""

import json
import socket
import sys
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from strict import format_of
from strict.cuts import CLEAN, cut
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
        status, reply = self.server.judge(self.path, body)
        self.server.seen.append(Seen(self.path, dict(self.headers), body, status))
        place = self.server.take_cut(body) if status == 200 else None
        if place:
            self.send_cut(reply, place)
        else:
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
        self.send_head(status, reply)
        self.send_frames(reply, reply.frames)
        if reply.streamed:
            self.wfile.write(b"0\r\n\r\n")

    def send_cut(self, reply, place):
        """An answer up to a place; then the connection breaks, or the body ends as if nothing were missing."""
        frames = cut(reply, place, format_of(self.path.split("?")[0]))
        if frames is not None:
            self.send_head(200, reply)
            self.send_frames(reply, frames)
        if place == CLEAN:
            self.wfile.write(b"0\r\n\r\n")
            return
        self.close_connection = True
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)

    def send_head(self, status, reply):
        self.send_response(status)
        self.send_header("content-type", reply.content_type)
        if reply.streamed:
            self.send_header("transfer-encoding", "chunked")
        else:
            self.send_header("content-length", str(sum(len(frame.encode()) for frame in reply.frames)))
        self.end_headers()

    def send_frames(self, reply, frames):
        for frame in map(str.encode, frames):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(frame), frame) if reply.streamed else frame)
            self.wfile.flush()

    def log_message(self, *_):
        """Silent."""


class StrictProvider(ThreadingHTTPServer):
    """The provider, serving in a thread of its own."""

    daemon_threads = True
    judge = staticmethod(judge)

    def __init__(self, port=0):
        super().__init__(("127.0.0.1", port), Handler)
        self.seen = []
        self.next_cut = None
        self.lock = threading.Lock()

    def cut(self, place, only_with_tools=False):
        """Breaks the next answer at a place. Agents ask for titles beside the turn, without tools."""
        with self.lock:
            self.next_cut = (place, only_with_tools)

    def take_cut(self, body):
        """The place at which this answer breaks, if it is the one."""
        with self.lock:
            place, only_with_tools = self.next_cut or (None, False)
            if not place or (only_with_tools and not json.loads(body).get("tools")):
                return None
            self.next_cut = None
            return place

    def uncut(self):
        """Takes back a break that did not happen; whether there was one."""
        with self.lock:
            left, self.next_cut = self.next_cut, None
            return left is not None

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
