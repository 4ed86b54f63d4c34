"""The agents of docs/late-results-frameworks.md: their slow tool's results reach the provider, and reach it once."""

import json
import time
import urllib.request

from calling_provider import order
from doc_service import service
from programs import SECONDS, Failed, program

# How the agent's user talks, and when the two jobs end: the first late, and the second before the user writes again.
FILMS = ("film 1 is at https://example.com/1.mp4", "film 2 is at https://example.com/2.mp4")
STORY = (
    ("say", "Render the harbour at night.", 0),
    ("say", "How long will it take?", 0),
    ("finish", FILMS[0], 1),
    ("say", "Is it ready?", 1),
    ("say", "Render the bridge at dawn.", 1),
    ("finish", FILMS[1], 2),
    ("say", "Is that one ready too?", 2),
    ("say", "Thanks.", 2),
)
# An agent that asks `lookup` inserts the second film in its place, and writes this for the first one only.
RUNNING = "Still running."


def check_agent(command, code, cwd, service_code, proxy, number):
    """Plays the story with one agent. `proxy` is its URL, a service's token, and the provider behind it."""
    base, token, provider = proxy
    key = f"sk-docs-agent-{number}"
    with service(service_code, base, token) as tool:
        env = {"ANTIPHON": base, "ANTHROPIC_API_KEY": key, "OPENAI_API_KEY": key, "RENDER": tool.url}
        with program([*command, code], env, cwd) as agent:
            for step, words, films in STORY:
                if step == "say":
                    before = len(provider.seen)
                    agent.say(words)
                    if not agent.line().strip():
                        raise Failed(f"{words!r}: the agent said nothing")
                    check_requests(provider.seen[before:], words, films)
                    continue
                if words == FILMS[0] and RUNNING in code:
                    check_open(base, key)
                check_post(tool.finish(words), base, key)
    running = provider.seen[-1].body.decode().count(RUNNING)
    if running != code.count(RUNNING):
        raise Failed(f"{running} calls are still running")


def check_requests(requests, words, films):
    """Each request was accepted, and contains the user's words and just the results that were posted, each once."""
    if not requests:
        raise Failed(f"{words!r}: no request reached the provider")
    for request in requests:
        text = request.body.decode()
        if request.status != 200 or words not in text:
            raise Failed(f"{words!r}: the provider got ({request.status}) {text}")
        found = [text.count(film) for film in FILMS]
        wanted = [int(film in FILMS[:films]) for film in FILMS]
        if found != wanted:
            raise Failed(f"{words!r}: contains the films {found} times, not {wanted}: {text}")


def check_post(status, base, key):
    """A post was taken, and settles its call. With 202 the call is still being recorded, and settles a little later."""
    if status not in ("200", "202"):
        raise Failed(f"the service's post was answered with {status}")
    wait_until(lambda: ask_ledger(base, key, "me")["outstanding"] == 1, f"the post ({status}) settles no call")


def check_open(base, key):
    """The call that the agent answered provisionally is still listed as running."""
    # The ledger takes notes in order: once this call is listed, it has noted what became of the agent's own.
    later, _ = order(base, key)
    wait_until(lambda: later in open_calls(base, key), "a new call is not listed")
    if len(open_calls(base, key)) != 2:
        raise Failed("the call that the agent answered provisionally is not listed")


def open_calls(base, key):
    return [call["call_id"] for call in ask_ledger(base, key, "outstanding?state=open")["outstanding"]]


def ask_ledger(base, key, path):
    request = urllib.request.Request(f"{base}/ledger/v1/{path}", headers={"x-api-key": key})
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return json.load(answer)


def wait_until(is_so, otherwise):
    """Waits until a condition holds."""
    end = time.monotonic() + SECONDS
    while not is_so():
        if time.monotonic() > end:
            raise Failed(otherwise)
        time.sleep(0.05)
