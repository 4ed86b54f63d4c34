"""The service of docs/late-results-frameworks.md: run for the agents, and against a ledger that fails."""

import json
import os
import socket
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from programs import SECONDS, Failed, program
from running import free_port

OWNER = "owner-of-the-call"


class Service:
    """The running service. Each of its jobs ends when it is told its film."""

    def __init__(self, running, url, films):
        self.running, self.url, self.films = running, url, films

    def finish(self, film):
        """Ends one job with this film. Returns the status that its post got."""
        os.write(self.films, f"{film}\n".encode())
        return self.running.line().split()[0]


@contextmanager
def service(code, ledger, token):
    """Runs the service, whose results go to a ledger."""
    with tempfile.TemporaryDirectory() as home:
        pipe = Path(home) / "films"
        os.mkfifo(pipe)
        # Open in both directions, so that neither this script nor a job waits for the other to open it.
        films = os.open(pipe, os.O_RDWR)
        port = free_port()
        env = {"ANTIPHON": ledger, "RUNNER_TOKEN": token, "PORT": str(port)}
        env["RENDER_COMMAND"] = f'read -r film < "{pipe}" && echo "$film"'
        try:
            with program([sys.executable, "-c", code], env) as running:
                wait_for(port, running)
                yield Service(running, f"http://127.0.0.1:{port}", films)
        finally:
            os.close(films)


def wait_for(port, running):
    """Waits until the program listens."""
    for _ in range(SECONDS * 20):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError as error:
            if running.process.poll() is not None:
                raise Failed("it has ended before it listened") from error
            time.sleep(0.05)
    raise Failed("it does not listen")


# What the ledger answers to the posts of one job, by the call's id. A 0 breaks the connection.
SCRIPTS = {
    "call/a": [503, 200],
    "call/b": [0, 200],
    "call/c": [202, 200],
    "call/d": [409],
    "call/e": [422],
}


def check_service(code):
    """Posts until an answer says that no retry is needed or helps, and with the same bytes."""
    with scripted_ledger() as ledger, service(code, ledger.url, "token") as running:
        for call_id, script in SCRIPTS.items():
            job = {"call": {"call_id": call_id, "owner": OWNER}, "input": {}}
            urllib.request.urlopen(running.url, json.dumps(job).encode(), timeout=SECONDS).close()
            status = running.finish("film")
            if status != str(script[-1]):
                raise Failed(f"{call_id}: its job ended with {status}, not {script[-1]}")
    for call_id, script in SCRIPTS.items():
        posts = ledger.posts[f"/ledger/v1/calls/{call_id.replace('/', '%2F')}/result"]
        if len(posts) != len(script):
            raise Failed(f"{call_id}: {len(posts)} posts, not {len(script)}")
        expected = {"call_id": call_id, "owner": OWNER, "content": "film\n", "is_error": False}
        if {authorization for authorization, _ in posts} != {"Bearer token"}:
            raise Failed(f"{call_id}: posted without its token")
        if len(set(posts)) != 1 or json.loads(posts[0][1]) != expected:
            raise Failed(f"{call_id}: posted {posts}")


class Ledger(BaseHTTPRequestHandler):
    """Answers the posts of each call as its script says."""

    def do_POST(self):
        posts = self.server.posts[self.path]
        posts.append((self.headers["authorization"], self.rfile.read(int(self.headers["content-length"]))))
        script = SCRIPTS[self.path.split("/")[4].replace("%2F", "/")]
        status = script[min(len(posts), len(script)) - 1]
        if not status:
            return
        answer = json.dumps({"state": "parked", "expires_at": int(time.time()) + 3600} if status == 202 else {}).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        """Says nothing: the output is that of the checks."""


@contextmanager
def scripted_ledger():
    """Runs the ledger: an object with its `url` and the `posts` that came."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Ledger)
    server.posts = defaultdict(list)
    server.url = f"http://127.0.0.1:{server.server_port}"
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
