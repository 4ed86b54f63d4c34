"""Requests to `/ledger/v1` whose answers are known: each must be the one that is due, and conform to the document.

Runs in the virtual environment of `ledger.py`, with the base URL as its argument. It prints what is wrong, and exits with
1 if anything is.
"""

import base64
import hashlib
import hmac
import json
import os
import sys
import time
from pathlib import Path

import requests
import schemathesis
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from named_call_provider import ask

BASE = sys.argv[1]
ROOT = "/ledger/v1/"
SERVICE = {"authorization": f"Bearer {os.environ['RUNNER_TOKEN']}"}
CALLER = {"x-api-key": os.environ["API_KEY"]}
FIRST, SECOND, THIRD = (f"toolu_01{letter}9q90qw90lq917835lq9xx" for letter in "STU")
REUSABLE = "call_7"
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]
CONFORMANCE = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# 410, 503 and 507 need time, a failing ledger or a full one: the Rust tests have them.
REACHED = {200, 202, 400, 403, 404, 409, 413, 417, 422, 426}

schema = schemathesis.openapi.from_url(f"{BASE}{ROOT}openapi.json")
document = schema.raw_schema
wrong = []
reached = set()


def send(method, template, due, body=None, headers=None, query=None, **names):
    """One request. Returns the JSON of its answer, which has the status that is due and is as documented."""
    path = ROOT + template.format(**{name: requests.utils.quote(value, safe="") for name, value in names.items()})
    data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
    response = requests.request(method, BASE + path, data=data, headers=headers or {}, params=query, timeout=20)
    reached.add(response.status_code)
    what = f"{method} {path} {query or ''}: {response.status_code} {response.text[:500]}"
    if response.status_code != due:
        wrong.append(f"{what}\n    due: {due}")
    case = schema[ROOT + template][method].Case(path_parameters=names, headers=headers, query=query)
    try:
        case.validate_response(response, checks=CONFORMANCE)
    except FailureGroup as failure:
        wrong.append(f"{what}\n    {failure}")
    return response.json()


def expect(what, actual, due):
    """Notes a value that is not the one that is due."""
    if actual != due:
        wrong.append(f"{what}: {actual!r}\n    due: {due!r}")


def signed(body, message):
    """The headers of a signed message."""
    at = str(int(time.time()))
    key = base64.b64decode(os.environ["RUNNER_SECRET"].removeprefix("whsec_"))
    mac = hmac.new(key, f"{message}.{at}.".encode() + body, hashlib.sha256).digest()
    signature = "v1," + base64.b64encode(mac).decode()
    return {"webhook-id": message, "webhook-timestamp": at, "webhook-signature": signature}


def wait_for_calls(*calls):
    """Until the calls are listed: on a busy machine an answer goes on before its calls are recorded."""
    for _ in range(200):
        answer = requests.get(f"{BASE}{ROOT}outstanding", headers=CALLER, params={"state": "open"}, timeout=20)
        if set(calls) <= {row["call_id"] for row in answer.json().get("outstanding", [])}:
            return
        time.sleep(0.1)
    sys.exit(f"the calls are not recorded: {answer.text}")


def posts():
    """Results are posted, refused, corrected and withdrawn."""
    owner = ask(BASE, FIRST)
    ask(BASE, SECOND)
    ask(BASE, THIRD)
    for _ in range(2):
        ask(BASE, REUSABLE)
    wait_for_calls(FIRST, SECOND, THIRD, REUSABLE)
    result, done = "calls/{call_id}/result", {"owner": owner, "content": "done"}
    expect("owner", send("GET", "me", 200, headers=CALLER)["owner"], owner)
    running = send("GET", "outstanding", 200, headers=CALLER, query={"state": "open", "session": "my-session"})
    expect("the first running call", running["outstanding"][0]["call_id"], FIRST)
    send("POST", "calls/{call_id}/heartbeat", 200, headers=SERVICE, call_id=FIRST)
    send("POST", "calls/{call_id}/withdraw", 409, headers=SERVICE, call_id=FIRST)
    send("POST", result, 200, done, SERVICE, call_id=FIRST)
    again = send("POST", result, 200, done, SERVICE, call_id=FIRST)
    expect("first", again["first"], False)
    send("POST", result, 409, {"content": "else"}, SERVICE, call_id=FIRST)
    send("POST", result, 200, {"content": "else", "replaces": again["digest"]}, SERVICE, call_id=FIRST)
    send("POST", "calls/{call_id}/heartbeat", 409, headers=SERVICE, call_id=FIRST)
    send("POST", "calls/{call_id}/withdraw", 200, {"owner": owner}, SERVICE, call_id=FIRST)
    send("POST", result, 200, b'{"content": {"a": [1.0, "\\u0041"]}, "is_error": true}', SERVICE, call_id=FIRST)
    send("POST", result, 409, {"content": 1}, SERVICE, call_id=REUSABLE)
    send("POST", result, 202, {"content": 1}, SERVICE, call_id="toolu_01Z99z90zw90zq917835zq9")
    send("POST", result, 404, {"content": 1}, SERVICE, call_id="call_8")
    send("POST", result, 404, {"content": 1}, CALLER, call_id=FIRST)
    send("POST", result, 422, {}, SERVICE, call_id=FIRST)
    send("POST", result, 422, b"no json", SERVICE, call_id=FIRST)
    send("POST", result, 422, b'{"content": ' + b"[" * 65 + b"]" * 65 + b"}", SERVICE, call_id=FIRST)
    body = json.dumps({"call_id": SECOND, "content": [{"type": "text", "text": "done"}]}).encode()
    headers = signed(body, "msg_1")
    send("POST", result, 200, body, headers, call_id=SECOND)
    send("POST", result, 200, body, headers, call_id=SECOND)
    send("POST", result, 404, body.replace(b"done", b"else"), headers, call_id=SECOND)
    body = body.replace(b"done", b"else")
    send("POST", result, 409, body, signed(body, "msg_1"), call_id=SECOND)


def reads():
    """The caller reads and acknowledges its results."""
    page = send("GET", "outstanding", 200, headers=CALLER, query={"limit": "1"})
    expect("the first page", [row["call_id"] for row in page["outstanding"]], [FIRST])
    rest = send("GET", "outstanding", 200, headers=CALLER, query={"after": page["next"]})
    expect("the second page", [row["call_id"] for row in rest["outstanding"]], [SECOND])
    send("GET", "outstanding", 422, headers=CALLER, query={"limit": "0"})
    send("GET", "outstanding", 404)
    found = send("POST", "lookup", 200, {"call_ids": [FIRST, THIRD, REUSABLE]}, CALLER)["results"]
    expect("the found result", [(row["call_id"], row["content"]) for row in found], [(FIRST, {"a": [1.0, "A"]})])
    send("POST", "lookup", 422, {"call_ids": []}, CALLER)
    send("POST", "lookup", 413, b" " * 70_000, CALLER)
    delivery = page["outstanding"][0]["delivery"]
    send("POST", "deliveries/{delivery}/ack", 404, delivery=delivery)
    for _ in range(2):
        send("POST", "deliveries/{delivery}/ack", 200, headers=CALLER, delivery=delivery)
    send("POST", "deliveries/{delivery}/ack", 404, headers=CALLER, delivery="0" * 64)
    send("POST", "sessions/{session}/close", 200, headers=CALLER, session="my session")
    return rest["outstanding"][0]["delivery"]


def follows(waiting):
    """The feed begins with the results that wait."""
    headers = CALLER | {"Last-Event-ID": "0" * 64}
    with requests.get(f"{BASE}{ROOT}feed", headers=headers, stream=True, timeout=20) as response:
        expect("the feed", response.headers["content-type"], "text/event-stream")
        lines = response.iter_lines(decode_unicode=True)
        data = next(line for line in lines if line.startswith("data: "))
    event = json.loads(data.removeprefix("data: "))
    expect("the event", event["delivery"], waiting)
    expect("its keys", sorted(event), sorted(document["components"]["schemas"]["SettledEvent"]["required"]))


def refused_heads():
    """The proxy's own refusals have the shape of the API's, whatever credential there is."""
    send("GET", "me", 403, headers=CALLER | {"host": "evil.example"})
    send("POST", "sessions/{session}/close", 400, headers=CALLER, session="a/b")
    send("GET", "me", 426, headers=CALLER | {"upgrade": "websocket"})
    send("GET", "me", 417, headers=CALLER | {"expect": "a-miracle"})


def other_methods():
    """Every method that a path does not have gets 405 and the one that it has."""
    for path, operations in document["paths"].items():
        due = ", ".join(sorted(method.upper() for method in operations))
        for method in set(METHODS) - set(due.split(", ")):
            response = requests.request(method, BASE + path.replace("{", "").replace("}", ""), timeout=20)
            answer = (response.status_code, response.headers.get("allow"))
            expect(f"{method} {path}", answer, (405, due))


posts()
follows(reads())
refused_heads()
other_methods()
if REACHED - reached:
    wrong.append(f"no request got {sorted(REACHED - reached)}")
print("\n".join(wrong) or f"the requests of {Path(__file__).name}: every answer is the one that is due")
sys.exit(1 if wrong else 0)
