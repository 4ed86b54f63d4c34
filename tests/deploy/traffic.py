"""Requests of every kind through a proxy: what they leave on the metrics page is what dashboards show."""

import json
import urllib.error
import urllib.request

from provider import REFUSED_KEY, TAKEN_KEY, TOO_MANY_TOKENS

MESSAGES = "/anthropic/v1/messages"
CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_01A", "name": "run", "input": {"a": 1}}]}
HEALTHY = [{"role": "user", "content": "go"}]
BROKEN = [*HEALTHY, CALL, {"role": "user", "content": "hurry"}]


def config(provider):
    """An upstream with two profiles, of which one is refused."""
    return f"""
        [upstreams.pool]
        url = "{provider.url}"
        kind = "anthropic"
        [[upstreams.pool.profiles]]
        name = "refused"
        weight = 1000
        api_key = "{REFUSED_KEY}"
        [[upstreams.pool.profiles]]
        name = "taken"
        api_key = "{TAKEN_KEY}"
    """


def ask(base, path, body, **headers):
    """The status of one request."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = {"content-type": "application/json", "x-api-key": "sk-client", "anthropic-version": "2023-06-01"}
    request = urllib.request.Request(base + path, data, fields | headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            answer.read()
            return answer.status
    except urllib.error.HTTPError as error:
        error.read()
        return error.code


def body(messages, **more):
    """A Messages request."""
    return {"model": "m", "max_tokens": 9, "messages": messages} | more


def send(base):
    """Some of each kind: yields what was asked for, the status that is due, and the one that came."""
    fresh = {"type": "tool_use", "id": "toolu_01Fresh", "name": "run", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_01Fresh", "content": "done"}
    settled = [*HEALTHY, {"role": "assistant", "content": [fresh]}, {"role": "user", "content": [result]}]
    for name, due, path, sent, headers in [
        ("healthy", 200, MESSAGES, body(HEALTHY), {}),
        ("streamed", 200, MESSAGES, body(HEALTHY, stream=True), {}),
        ("broken", 200, MESSAGES, body(BROKEN), {}),
        ("strict and broken", 400, MESSAGES, body(BROKEN), {"x-antiphon-mode": "strict"}),
        ("a tool is called", 200, MESSAGES, body(HEALTHY, tools=[]), {}),
        ("the tool has answered", 200, MESSAGES, body(settled), {}),
        # The proxy reads the refusal, and sends the request again as it demands.
        ("refused in known words", 200, MESSAGES, body(HEALTHY, max_tokens=TOO_MANY_TOKENS), {}),
        ("unread", 400, MESSAGES, b"no json", {}),
        ("no route", 404, "/nowhere/at/all", b"{}", {}),
        ("with profiles", 200, "/pool/v1/messages", body(HEALTHY), {}),
    ]:
        yield name, due, ask(base, path, sent, **headers)
