#!/usr/bin/env python3
"""Kills real clients in a slow tool of a wrapped server, resumes them, and looks for the result at their provider.

    python3 tests/mcp/stories.py [PATH OF THE BINARY]     default: $ANTIPHON_BIN, else target/debug/antiphon

Claude Code and Codex, each in a home of its own, talk through Antiphon to a provider on loopback that plays a script and
refuses what a strict one would. There is no configuration: the wrapper has the token of this machine. Each story ends
with one run of the tool, its result in the conversation once, no refusal and no process left. Clients that cannot be
installed are skipped aloud. The last line is `N passed, N failed`, and it exits with 1 if any failed.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent / "sessions"), str(HERE.parent / "sdk")]

from clients import CLIENTS, SERVER, TARGET, program  # noqa: E402
from driving import Home  # noqa: E402
from pairs import parts_of  # noqa: E402
from running import antiphon  # noqa: E402
from server import serving  # noqa: E402

SECONDS = 60
# The word in the tool's result, which nothing else contains.
WORD = "merganser"
SESSION = "5e551001-0000-4000-8000-0000000000bb"
FIRST, SECOND, THIRD = "Please do turn-1.", "Please do turn-2.", "Please do turn-3."
NAMES = {"Claude Code": "claude-code", "Codex": "codex"}
UPSTREAMS = {"claude-code": "anthropic", "codex": "openai"}
CALL_IDS = {"claude-code": "toolu_01Story{:017d}", "codex": "call_Story{:016d}"}


@dataclass
class Stage:
    """A client, its wrapped server, its proxy and its provider."""

    client: str
    home: Home
    provider: object
    url: str
    # The folder in which the tool notes its runs, and waits for `gate`.
    tool: Path
    state: Path
    binary: Path

    def start(self, prompt, resume=False, timeout=None):
        """Starts the client for one prompt."""
        environment = self.home.environment(f"{self.url}/{UPSTREAMS[self.client]}")
        flags = ["--client-timeout", f"{timeout}s"] if timeout else []
        arguments = ["mcp", *flags, "--", sys.executable, str(SERVER), "--gate", str(self.tool)]
        entry = {"command": str(self.binary), "args": arguments}
        entry["env"] = {"ANTIPHON_URL": self.url, "XDG_STATE_HOME": str(self.state)}
        session = SESSION
        if self.client == "codex":
            # Its file comes from `environment`.
            with (self.home.home / ".codex/config.toml").open("a", encoding="utf-8") as file:
                file.write(codex_entry(entry, timeout or 600))
            extra = []
            if resume:
                session = self.home.session_files()[-1].stem[-36:]
        else:
            # A client that reads its file gives the tool's time in ms.
            file = self.home.home / "mcp.json"
            file.write_text(json.dumps({"mcpServers": {"toy": entry | {"timeout": (timeout or 600) * 1000}}}), "utf-8")
            extra = ["--strict-mcp-config", "--mcp-config", str(file), "--allowedTools", "mcp__toy__render"]
        command = [*self.home.command, *self.home.arguments(prompt, session, resume), *extra]
        log = (self.home.home / "log").open("ab")
        process = subprocess.Popen(
            command, cwd=self.home.work, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        log.close()
        return process

    def finish(self, process):
        try:
            if process.wait(SECONDS) != 0:
                raise Wrong(f"the client exits with {process.returncode}: {self.log()}")
        except subprocess.TimeoutExpired:
            process.kill()
            raise Wrong(f"the client does not end: {self.log()}") from None

    def log(self):
        return (self.home.home / "log").read_text("utf-8", "replace")[-600:]

    def runs(self):
        file = self.tool / "runs"
        return len(file.read_text("utf-8").splitlines()) if file.exists() else 0

    def marks(self):
        return len(list((self.state / "antiphon/mcp").glob("*.run")))

    def has_written_call(self):
        """Tells if the client's own file has the first call."""
        first = CALL_IDS[self.client].format(1)
        return any(first in file.read_text("utf-8", "replace") for file in self.home.session_files())

    def kill_in_the_tool(self):
        """Starts the first turn, and kills the client once the tool runs."""
        process = self.start(FIRST)
        await_that(lambda: self.runs() == 1, lambda: f"the tool runs: {self.log()}")
        # Claude Code writes its file a moment later. Killed before, it resumes a conversation that has no such call.
        await_that(self.has_written_call, lambda: f"the session has the call: {self.log()}")
        process.send_signal(signal.SIGKILL)
        process.wait()
        await_that(lambda: self.marks() == 1, lambda: "the run goes on without its client")

    def open_gate(self):
        (self.tool / "gate").touch()

    def await_post(self):
        await_that(lambda: self.marks() == 0, lambda: "the result is posted")

    def processes(self):
        """The processes of the wrapper and its server."""
        mark = str(self.tool).encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (folder / "cmdline").read_bytes():
                    found.append(folder.name)
            except OSError:
                pass
        return found

    def judge(self):
        """What is wrong at the end, in sentences."""
        calls, results, history = parts_of(self.provider.turns()[-1])
        if self.provider.refusals:
            yield f"the provider has refused: {self.provider.refusals[0]}"
        if self.runs() != 1:
            yield f"the tool ran {self.runs()} times"
        if history.count(WORD) != 1:
            yield f"the result is {history.count(WORD)} times in the last request, with {len(calls)} calls: {results}"
        await_that(lambda: not self.processes(), lambda: f"{len(self.processes())} processes end")
        if self.marks():
            yield "a mark is left"


def codex_entry(entry, timeout):
    lines = ["[mcp_servers.toy]", f"command = {json.dumps(entry['command'])}", f"args = {json.dumps(entry['args'])}"]
    lines += [f"tool_timeout_sec = {timeout}", "[mcp_servers.toy.env]"]
    return "\n".join(lines + [f"{name} = {json.dumps(value)}" for name, value in entry["env"].items()]) + "\n"


class Wrong(Exception):
    """A story that did not go on."""


def await_that(holds, what):
    deadline = time.monotonic() + SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise Wrong(f"it did not come to pass that {what()}")
        time.sleep(0.05)


# The stories.


def result_after_a_kill(stage):
    """The client is killed in the tool, and resumed after its end."""
    stage.kill_in_the_tool()
    stage.open_gate()
    stage.await_post()
    stage.finish(stage.start(SECOND, resume=True))


def same_call_after_a_kill(stage):
    """The client is killed in the tool, and the model calls it again while it runs."""
    stage.kill_in_the_tool()
    stage.provider.script["turn-2"].insert(0, [call(stage.client, 2)])
    process = stage.start(SECOND, resume=True)
    second = CALL_IDS[stage.client].format(2)
    await_that(lambda: stage.provider.asked(second), lambda: f"the model calls again: {stage.log()}")
    # The call reaches the wrapper. Two servers are up then, and one has a run.
    time.sleep(1)
    stage.open_gate()
    stage.finish(process)
    _, results, _ = parts_of(stage.provider.turns()[-1])
    if WORD not in results.get(second, ""):
        raise Wrong(f"the second call has another result: {results}")


def result_after_a_timeout(stage):
    """The client gives the call up, and ends its turn. The result comes later."""
    stage.finish(stage.start(FIRST, timeout=2))
    _, _, history = parts_of(stage.provider.turns()[-1])
    if WORD in history or stage.runs() != 1:
        raise Wrong("the client has not given up")
    stage.open_gate()
    stage.await_post()
    stage.finish(stage.start(SECOND, resume=True, timeout=2))


STORIES = [result_after_a_kill, same_call_after_a_kill, result_after_a_timeout]


def call(client, number):
    tool = {"name": "render", "namespace": "mcp__toy"} if client == "codex" else {"name": "mcp__toy__render"}
    return tool | {"id": CALL_IDS[client].format(number), "input": {"scene": "one"}}


@contextmanager
def staged(client, command, binary):
    script = {"turn-1": [[call(client, 1)], [{"text": "answer-1"}]], "turn-2": [[{"text": "answer-2"}]]}
    script["turn-3"] = [[{"text": "answer-3"}]]
    with tempfile.TemporaryDirectory() as folder, serving(script) as provider:
        folder = Path(folder).resolve()
        provider.asked = lambda call_id: any(call_id in json.dumps(step) for step in provider.played)
        tool, state = folder / "tool", folder / "state"
        for path in (tool, state):
            path.mkdir()
        home = Home(client, command, folder / "home", folder / "work")
        with antiphon(binary, [UPSTREAMS[client]], provider, state=state) as (url, _):
            stage = Stage(client, home, provider, url, tool, state, binary)
            try:
                yield stage
            finally:
                for process in stage.processes():
                    os.kill(int(process), signal.SIGKILL)


def main():
    binary = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ANTIPHON_BIN") or TARGET / "debug" / "antiphon")
    if not binary.exists():
        print(f"no binary at {binary}: cargo build, or name another")
        return 1
    if not Path("/proc/self/cmdline").exists():
        print("skipped: processes are counted in /proc")
        return 0
    tally = [0, 0]
    for client in [client for client in CLIENTS if client.name in NAMES]:
        command = program(client)
        for story in STORIES if command else []:
            with staged(NAMES[client.name], command, binary.resolve()) as stage:
                try:
                    story(stage)
                    # Once more: a result that is there is not delivered again.
                    stage.finish(stage.start(THIRD, resume=True))
                    wrong = list(stage.judge())
                except Wrong as error:
                    wrong = [str(error)]
            name = f"{client.name} {client.version}: {story.__name__.replace('_', ' ')}"
            tally[bool(wrong)] += 1
            print(f"FAILED {name}: {'; '.join(wrong)}" if wrong else f"ok {name}", flush=True)
    print(f"{tally[0]} passed, {tally[1]} failed")
    return int(tally[1] > 0)


if __name__ == "__main__":
    sys.exit(main())
