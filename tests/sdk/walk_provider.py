"""The strict provider, with what agents ask after a login: Code Assist for Google's, Responses for ChatGPT's."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from strict import gemini
from strict.reply import EVENTS, HALVES, WORDS, Refusal, Reply, whole
from strict_provider import StrictProvider, judge

UPSTREAMS = ("anthropic", "openai", "gemini")
CHATGPT_HOST = "https://chatgpt.com/backend-api/codex"
CODE_ASSIST_HOST = "https://cloudcode-pa.googleapis.com"
ZSTD = b"\x28\xb5\x2f\xfd"
CHATGPT = "/backend-api/codex"
CODE_ASSIST = "/v1internal:"
# What Code Assist says to a user who has a project already.
TIER = {"id": "standard-tier", "name": "standard", "isDefault": True, "userDefinedCloudaicompanionProject": True}
USER = {"currentTier": TIER, "allowedTiers": [TIER], "cloudaicompanionProject": "walk"}
CODE_ASSIST_ANSWERS = {"loadCodeAssist": USER, "onboardUser": {"done": True, "response": USER}}


class WalkProvider(StrictProvider):
    """Answers also under the paths of the hosts of logins."""

    def judge(self, target, body):
        """Returns the status and the answer to one request."""
        path = target.split("?")[0]
        if body.startswith(ZSTD):
            # Codex compresses its requests with a ChatGPT login. Python cannot read them, so they are only answered.
            body = b'{"stream": true}'
        if path.startswith(CHATGPT):
            return judge(target.replace(CHATGPT, "/v1", 1), body)
        if path.startswith(CODE_ASSIST):
            return judge_code_assist(path.removeprefix(CODE_ASSIST), body)
        return judge(target, body)

    @property
    def hosts(self):
        """The documented hosts of logins, and what stands in for them here."""
        return {CHATGPT_HOST: f"{self.url}{CHATGPT}", CODE_ASSIST_HOST: self.url}

    @property
    def login_upstreams(self):
        """The configuration of a proxy with the hosts of logins."""
        chatgpt, code_assist = self.hosts.values()
        return f'[upstreams.chatgpt]\nurl = "{chatgpt}"\n[upstreams.code-assist]\nurl = "{code_assist}"\n'


def judge_code_assist(action, body):
    """Gemini's format, inside of one more object."""
    if action in ("generateContent", "streamGenerateContent"):
        parsed = json.loads(body)
        try:
            gemini.check(parsed["request"])
        except Refusal as refusal:
            return 400, whole(gemini.error(400, str(refusal), action))
        if action == "generateContent":
            return 200, whole({"response": gemini.piece(parsed["model"], WORDS, done=True)})
        pieces = [{"response": gemini.piece(parsed["model"], half, half == HALVES[-1])} for half in HALVES]
        return 200, Reply(EVENTS, [f"data: {json.dumps(piece)}\r\n\r\n" for piece in pieces])
    return 200, whole(CODE_ASSIST_ANSWERS.get(action, {}))


class Fence(ThreadingHTTPServer):
    """A forward proxy that lets nothing out, so that no forged login reaches a real host. `hosts` are those wanted."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Refuse)
        self.hosts = set()

    def __enter__(self):
        Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()

    def handle_error(self, request, client_address):
        """A client that goes away is its own business."""

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Refuse(BaseHTTPRequestHandler):
    """One connection to the fence."""

    def do_CONNECT(self):
        """Keeps the host, and refuses."""
        self.server.hosts.add(self.path.rpartition(":")[0])
        self.send_response(403)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        """Silent."""
