"""A provider on loopback that plays a script: Anthropic's Messages and OpenAI's Responses, each streamed.

A user's prompt names its place in the script ("turn-2"). The first step of that place whose call or words are not yet
in the request is the answer, so the server keeps no state, and a client may be stopped and resumed at will. Every
request is recorded, and judged by `pairs.py`: one whose calls and results do not match is refused with 400.
"""

import json
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pairs import broken_pairs

DONE = "The script has no more words."
USAGE = {"input_tokens": 5, "output_tokens": 5}


@dataclass
class Provider:
    """The script by place: each step is a list of blocks, `{"text"}`, `{"thinking"}` or `{"id", "name", "input"}`.

    A call in Responses may have a `namespace`, too.
    """

    script: dict
    strict: bool = True
    requests: list = field(default_factory=list)
    refusals: list = field(default_factory=list)
    # The steps that were given as answers.
    played: list = field(default_factory=list)
    url: str = ""

    def turns(self):
        """The requests of the conversation itself: those with tools."""
        return [body for body in self.requests if body.get("tools")]

    def step(self, body):
        """The blocks of the answer to a request."""
        if not body.get("tools"):
            return [{"text": "A title"}]
        place, behind = None, ""
        for message in body.get("messages") or body.get("input") or []:
            text = json.dumps(message)
            if message.get("role") == "user" and (found := re.findall(r"\bturn-[a-z0-9]+", text)):
                if found[-1] in self.script:
                    place, behind = found[-1], ""
            else:
                behind += text
        for blocks in self.script.get(place, []):
            known = [block.get("id") or block.get("text") for block in blocks if "thinking" not in block]
            if not all(json.dumps(word)[1:-1] in behind for word in known):
                return blocks
        return [{"text": DONE}]


def anthropic_stream(blocks, model, number):
    """An answer as Anthropic streams it."""
    message = {"id": f"msg_01Fixture{number:015d}", "type": "message", "role": "assistant", "model": model}
    message |= {"content": [], "stop_reason": None, "stop_sequence": None, "usage": USAGE}
    events = [{"type": "message_start", "message": message}]
    for index, block in enumerate(blocks):
        start, deltas = anthropic_block(block)
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    reason = "tool_use" if any("id" in block for block in blocks) else "end_turn"
    delta = {"stop_reason": reason, "stop_sequence": None}
    events += [{"type": "message_delta", "delta": delta, "usage": USAGE}, {"type": "message_stop"}]
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()


def anthropic_block(block):
    if "text" in block:
        return {"type": "text", "text": ""}, [{"type": "text_delta", "text": block["text"]}]
    if "thinking" in block:
        deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return {"type": "thinking", "thinking": "", "signature": ""}, deltas
    start = {"type": "tool_use", "id": block["id"], "name": block["name"], "input": {}}
    return start, [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]


def responses_stream(blocks, model, number):
    """An answer as OpenAI's Responses API streams it."""
    response = {"id": f"resp_fixture{number:04d}", "object": "response", "model": model, "status": "in_progress"}
    events = [{"type": "response.created", "response": response}]
    items = []
    for index, block in enumerate(blocks):
        item = responses_item(block, f"{number:04d}{index}")
        items.append(item)
        events.append({"type": "response.output_item.added", "output_index": index, "item": item})
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    usage = {"input_tokens": 5, "output_tokens": 5, "total_tokens": 10}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    done = response | {"status": "completed", "output": items, "usage": usage}
    events.append({"type": "response.completed", "response": done})
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()


def responses_item(block, number):
    if "text" in block:
        content = [{"type": "output_text", "text": block["text"], "annotations": []}]
        item = {"type": "message", "id": f"msg_fixture{number}", "role": "assistant", "status": "completed"}
        return item | {"content": content}
    if "thinking" in block:
        item = {"type": "reasoning", "id": f"rs_fixture{number}", "summary": []}
        return item | {"encrypted_content": block["signature"]}
    call = {"type": "function_call", "id": f"fc_fixture{number}", "call_id": block["id"], "name": block["name"]}
    if "namespace" in block:
        call["namespace"] = block["namespace"]
    return call | {"arguments": json.dumps(block["input"]), "status": "completed"}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def send(self, status, kind, data):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, status, text):
        error = {"type": "error", "error": {"type": "invalid_request_error", "message": text}}
        self.send(status, "application/json", json.dumps(error).encode())

    def do_HEAD(self):
        self.send(200, "text/plain", b"")

    def do_GET(self):
        self.refuse(404, "nothing is here")

    def do_POST(self):
        provider = self.server.provider
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        is_responses = self.path.split("?")[0].endswith("/responses")
        if not is_responses and not self.path.split("?")[0].endswith("/messages"):
            self.send(200, "application/json", b'{"input_tokens":10}')
            return
        provider.requests.append(body)
        wrong = broken_pairs(body)
        if wrong and provider.strict:
            provider.refusals.append(wrong)
            self.refuse(400, wrong)
            return
        number = len(provider.requests)
        blocks, model = provider.step(body), body.get("model", "")
        provider.played.append(blocks)
        if not is_responses and body.get("thinking", {}).get("type") not in ("enabled", "adaptive"):
            blocks = [block for block in blocks if "thinking" not in block]
        data = (responses_stream if is_responses else anthropic_stream)(blocks, model, number)
        self.send(200, "text/event-stream", data)


@contextmanager
def serving(script, strict=True):
    """A provider that plays `script`, on a port of its own."""
    provider = Provider(script, strict)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.provider = provider
    threading.Thread(target=server.serve_forever, daemon=True).start()
    provider.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
