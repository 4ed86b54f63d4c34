"""Answers that break: what the user of a client gets through Antiphon is never worse than directly.

The provider breaks the first answer that counts, and answers everything after it. Better than an answer that only looks
whole is an error, and better than an error is the whole answer, after the client's own retry.
"""

import clients as sdks
from conversations import FORMATS
from strict.cuts import CLEAN, PLACES
from strict.reply import WORDS

LOOKS_WHOLE, FAILED, ANSWERED = range(3)
NAMES = ("looks whole", "failed", "answered")
# A JSON answer has no events.
PLACES_OF = {"stream": (*PLACES, CLEAN), "plain": PLACES[:3]}


def ask(client, base, request, way):
    """What the user gets: a rank, and the kind of the error."""
    try:
        said = client.ask(base, request, way)
    except Exception as error:  # noqa: BLE001, any error is told to the user
        kind = type(error).__name__
        return FAILED, str(error).split(":")[0] if kind == "RuntimeError" else kind
    return (ANSWERED, "") if said == WORDS else (LOOKS_WHOLE, repr(said))


def check_cuts(clients, provider, base):
    """The SDKs, with the retries that they have by themselves."""
    retries, sdks.SETTINGS["max_retries"] = sdks.SETTINGS["max_retries"], 2
    try:
        for client in clients:
            format_ = FORMATS[client.format]
            request = format_.conversations[0].request
            for way in client.ways:
                for place in PLACES_OF.get(way, ()):
                    label = f"{client.name} {way} cut: {place}"
                    yield label, compared(client, provider, (provider.url, f"{base}/{format_.upstream}"), request, way, place)
    finally:
        sdks.SETTINGS["max_retries"] = retries


def compared(client, provider, bases, request, way, place):
    """What is worse through Antiphon; nothing, if nothing is."""
    got = []
    for base in bases:
        provider.cut(place)
        got.append(ask(client, base, request, way))
        if provider.uncut():
            return "the provider was not asked"
    (direct, direct_kind), (through, kind) = got
    if through < direct:
        return f"{NAMES[direct]} {direct_kind} directly, {NAMES[through]} {kind} through antiphon"
    # A break must feel the same, or the client may not retry it. One before the first byte of the body is a 502.
    same = place in ("no head", "head", CLEAN) or through != FAILED or direct != FAILED or kind == direct_kind
    return "" if same else f"{direct_kind} directly, {kind} through antiphon"


def check_agents(agents, provider, base):
    """The agents, which retry by themselves."""
    for agent in agents:
        for place in (*PLACES, CLEAN):
            ends = []
            for through in (None, base):
                provider.cut(place, only_with_tools=True)
                finished, output = agent.run(provider.url, through)
                unasked = provider.uncut()
                ends.append(finished)
                if unasked:
                    yield f"{agent.name} cut: {place}", f"the provider was not asked: {output}"
                    break
            else:
                wrong = f"finished directly, not through antiphon: {output}" if ends[0] and not ends[1] else ""
                words = ["finished" if end else "not finished" for end in ends]
                yield f"{agent.name} cut: {place} (directly {words[0]}, through antiphon {words[1]})", wrong


def check_printed_urls(client, provider, base):
    """The AI SDK works with the base URL that Antiphon prints, and with the one that has a version."""
    for url in (f"{base}/anthropic", f"{base}/anthropic/v1"):
        got = ask(client, url, {}, "stream")
        path = provider.seen[-1].path
        right = got == (ANSWERED, "") and path == "/v1/messages"
        yield f"{client.name} at {url.removeprefix(base)}", "" if right else f"{got} {path}"
