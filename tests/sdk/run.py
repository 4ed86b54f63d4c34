#!/usr/bin/env python3
"""The official SDKs through a running Antiphon, against a strict provider.

    python3 tests/sdk/run.py [PATH OF THE BINARY]      default: $ANTIPHON_BIN, else target/debug/antiphon
    python3 tests/sdk/run.py --direct-only             the provider and the SDKs alone
    python3 tests/sdk/run.py --agents                  also opencode and pi, which takes some minutes more

Installs the SDKs below target/: sdk-venv, sdk-node, and sdk-agents (600 MB). The last line is `N passed, N failed`; it exits with 1 if any
failed, and with 0 and a line `skipped: …` if the SDKs cannot be installed. The Node SDKs are skipped alone.
"""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from agents import installed_agents
from clients import AI_SDK, PYTHON, Refused, node_clients
from conversations import FORMATS
from cut_checks import check_agents, check_cuts, check_printed_urls
from install import TARGET, node_sdks, python_sdks
from running import antiphon, fetch
from strict.reply import WORDS
from strict_provider import StrictProvider

INSIDE = "ANTIPHON_SDK_INSIDE"
NODE_HOME = "ANTIPHON_SDK_NODE"


def environment():
    """This script again, where the SDKs are installed."""
    python = python_sdks()
    if not python:
        return 0
    inside = os.environ | {INSIDE: "1", NODE_HOME: str(node_sdks() or "")}
    sys.stdout.flush()
    return subprocess.run([str(python), __file__, *sys.argv[1:]], env=inside, check=False).returncode


def asked(clients):
    """Every client in each of its ways with every conversation of its format."""
    for client in clients:
        for way in client.ways:
            for conversation in FORMATS[client.format].conversations:
                yield client, way, conversation


def attempt(client, base, conversation, way):
    """What went wrong; nothing, if the provider's words came back."""
    try:
        said = client.ask(base, conversation.request, way)
    except Exception as error:  # noqa: BLE001, any error is a failed check
        return f"{type(error).__name__}: {error}"
    return "" if said == WORDS else f"answered: {said!r}"


# The checks. Each yields its name and what is wrong, or an empty string.


def check_direct(clients, provider):
    """The provider alone: it takes the healthy, and refuses the broken with a 400 in its own words."""
    for client, way, conversation in asked(clients):
        label = f"{client.name} {way} direct: {conversation.name}"
        if not conversation.refusal:
            yield f"{label}: is answered", attempt(client, provider.url, conversation, way)
            continue
        try:
            wrong = f"answered: {client.ask(provider.url, conversation.request, way)!r}"
        except Refused as refusal:
            wrong = "" if conversation.refusal in str(refusal) else f"other words: {refusal}"
        except Exception as error:  # noqa: BLE001, any other error is a failed check
            wrong = f"{type(error).__name__}: {error}"
        yield f"{label}: is refused with 400", wrong


def check_through(clients, provider, base):
    """Through Antiphon: the healthy arrives byte for byte, the broken is answered with all that was real in it."""
    for client, way, conversation in asked(clients):
        label = f"{client.name} {way} through antiphon: {conversation.name}"
        through = f"{base}/{FORMATS[client.format].upstream}"
        attempt(client, provider.url, conversation, way)
        direct = provider.seen[-1].body
        yield f"{label}: is answered", attempt(client, through, conversation, way)
        seen = provider.seen[-1]
        if not conversation.refusal:
            same = seen.body == direct
            yield f"{label}: is byte-identical", "" if same else f"{direct!r} became {seen.body!r}"
            continue
        text = seen.body.decode()
        lost = [words for words in conversation.real if words not in text]
        yield f"{label}: nothing real is lost", f"lost {lost} in {text}" if lost or seen.status != 200 else ""


def check_metrics(clients, admin):
    """The repairs are counted: one at least for each broken request of a format."""
    text = fetch(f"{admin}/metrics")
    broken = Counter(client.format for client, _, conversation in asked(clients) if conversation.refusal)
    for format_, least in broken.items():
        label = FORMATS[format_].label
        rows = re.findall(rf'^antiphon_repairs_total{{[^}}]*format="{label}"[^}}]*}} \d+', text, re.MULTILINE)
        counted = sum(int(row.split()[-1]) for row in rows)
        wrong = "" if counted >= least else f"{counted}, not {least} or more: {rows}"
        yield f"metrics: the repairs of {label} are counted", wrong


def check_still():
    """A proxy on paused time: the SDK sits through minutes of silence."""
    cargo = shutil.which("cargo")
    if not cargo:
        print("skipped: the SDK on paused time: cargo is not installed")
        return
    command = [cargo, "test", "--locked", "--quiet", "--test", "it", "sdk_still"]
    env = os.environ | {"ANTIPHON_SDK_PYTHON": sys.executable}
    root = Path(__file__).resolve().parent.parent.parent
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)
    yield "anthropic on paused time: minutes of silence", done.stdout + done.stderr if done.returncode else ""


def report(checks, tally):
    for name, wrong in checks:
        tally[bool(wrong)] += 1
        print(f"FAILED {name}: {wrong}" if wrong else f"ok {name}", flush=True)


def main():
    for key in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        os.environ.pop(key, None)
    arguments = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    binary = Path(arguments[0] if arguments else os.environ.get("ANTIPHON_BIN") or TARGET / "debug" / "antiphon")
    upstreams = dict.fromkeys(format_.upstream for format_ in FORMATS.values())
    tally = [0, 0]
    with StrictProvider() as provider, node_clients(os.environ.get(NODE_HOME)) as node:
        clients = PYTHON + [client for client in node if client.name != AI_SDK]
        ai_sdk = [client for client in node if client.name == AI_SDK]
        report(check_direct(clients, provider), tally)
        if "--direct-only" not in sys.argv:
            try:
                with antiphon(binary.resolve(), upstreams, provider) as (base, admin):
                    report(check_through(clients, provider, base), tally)
                    report(check_metrics(clients, admin), tally)
                    report(check_cuts(clients, provider, base), tally)
                    for client in ai_sdk:
                        report(check_printed_urls(client, provider, base), tally)
                    if "--agents" in sys.argv:
                        report(check_agents(installed_agents(), provider, base), tally)
                    else:
                        print("skipped: the agents: they run with --agents")
            except (OSError, RuntimeError) as error:
                report([("antiphon runs", str(error))], tally)
            report(check_still(), tally)
    print(f"{tally[0]} passed, {tally[1]} failed")
    return 1 if tally[1] else 0


if __name__ == "__main__":
    sys.exit(main() if os.environ.get(INSIDE) else environment())
