"""One turn of an agent in a fresh home, and what can be wrong with it."""

import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field

from running import fetch, free_port
from strict.reply import WORDS
from walk_docs import PROXY
from walk_provider import UPSTREAMS, ZSTD

SECONDS = 300
PROMPT = "Say hello."
KEYS = {f"{name.upper()}_API_KEY": f"sk-walk-{name}" for name in UPSTREAMS}
# Colours, cursor movements and titles of windows.
ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9])")
NO_REQUEST = "no request came through the proxy"


@dataclass
class Turn:
    """One command line of a user. `credential` is the header, and its value, that must reach the provider."""

    script: str
    credential: tuple
    files: dict = field(default_factory=dict)
    variables: dict = field(default_factory=dict)
    # Words of `antiphon run` that are wanted in place of an answer.
    advice: str = ""


@dataclass
class Output:
    """How a command ended, and what it printed."""

    code: object
    out: str
    err: str

    @property
    def end(self):
        """Its last lines, for a report."""
        return f"exit code {self.code}\n{self.out[-1500:]}\n{self.err[-1500:]}".strip()


class Place:
    """Where agents run: the provider, the fence around this machine, and the programs that they find."""

    def __init__(self, provider, fence, programs, folder):
        self.provider, self.fence, self.programs, self.folder = provider, fence, programs, folder

    def play(self, turn, agent, proxy):
        """Returns what is wrong with a turn, or nothing. `proxy` has the two URLs of the one that runs."""
        home = self.folder / agent.program
        shutil.rmtree(home, ignore_errors=True)
        (home / "work").mkdir(parents=True)
        for path, text in turn.files.items():
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).write_text(self.with_addresses(text, proxy))
        env = self.environment(home, agent) | turn.variables
        env = {name: value for name, value in env.items() if value is not None}
        self.provider.seen.clear()
        self.fence.hosts.clear()
        before = counted(proxy)
        output = run(["sh", "-e", "-c", self.with_addresses(turn.script, proxy)], home / "work", env)
        end_rest(home)
        if turn.advice:
            return self.advice_fault(turn, output)
        return self.answer_fault(turn, output, said(output.err) or counted(proxy) - before)

    def with_addresses(self, text, proxy):
        """Puts this machine's addresses in the place of the documented ones."""
        for written, used in ({PROXY: proxy[0]} | self.provider.hosts).items():
            text = text.replace(written, used)
        return text

    def environment(self, home, agent):
        """Only what is named here: the user's own keys and settings stay away from a turn."""
        keep = {key: value for key, value in os.environ.items() if key in ("LANG", "TMPDIR", "SYSTEMROOT")}
        path = os.pathsep.join([*map(str, agent.folders), str(self.programs), os.environ["PATH"]])
        upstreams = ",".join(f"{name}={self.provider.url}" for name in UPSTREAMS)
        # The fence is for hosts elsewhere. Everything here is on this machine.
        fenced = dict.fromkeys(("HTTPS_PROXY", "https_proxy"), self.fence.url)
        fenced |= dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
        # There is no proxy at this address, so `antiphon run` starts one.
        own = {"ANTIPHON_UPSTREAM": upstreams, "ANTIPHON_LISTEN": f"127.0.0.1:{free_port()}"}
        shell = {"HOME": str(home), "PWD": str(home / "work"), "PATH": path, "TERM": "dumb"}
        return keep | KEYS | fenced | own | agent.variables | shell

    def advice_fault(self, turn, output):
        """What is wrong with a run of an agent that reads files only."""
        if self.provider.seen:
            return f"it reads a variable: the provider got {self.provider.seen[0].path}"
        missing = [words for words in (turn.advice, NO_REQUEST) if words not in output.err]
        return f"`antiphon run` does not say {missing}: {output.end}" if missing else ""

    def answer_fault(self, turn, output, count):
        """What is wrong with a run that must end with the provider's words."""
        turns = [seen for seen in self.provider.seen if seen.status == 200 and asks(seen.body)]
        bypass = f"; asked elsewhere: {', '.join(sorted(self.fence.hosts))}" if self.fence.hosts else ""
        if not turns:
            paths = sorted({f"{seen.path} ({seen.status})" for seen in self.provider.seen})
            return f"no turn reached the provider, but {paths or 'nothing'}{bypass}: {output.end}"
        if output.code != 0 or WORDS not in output.out:
            return f"the answer is not shown: {output.end}"
        if count < len(turns):
            return f"the proxy counts {count} requests, the provider got {len(turns)}: {output.end}"
        header, value = turn.credential
        for seen in turns:
            headers = {key.lower(): text for key, text in seen.headers.items()}
            if headers.get(header) != value:
                carriers = sorted(key for key, text in headers.items() if "walk" in text)
                return f"{header} arrived as {headers.get(header)}, not {value}; credentials are in {carriers}"
        return ""


def asks(body):
    """Whether a body contains the user's words, as far as it can be read."""
    return body.startswith(ZSTD) or PROMPT.encode() in body


def run(command, cwd, env):
    """Runs a command and everything that it starts, until it ends or the time is over."""
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=SECONDS)
            code = process.returncode
        except subprocess.TimeoutExpired:
            # `antiphon run` ends its command, and says what came through.
            os.killpg(process.pid, signal.SIGTERM)
            try:
                out, err = process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                out, err = process.communicate()
            code = f"none: still running after {SECONDS} s"
    return Output(code, ESCAPES.sub("", out), ESCAPES.sub("", err))


def end_rest(home):
    """Ends what a turn leaves running, such as Cline's hub: its arguments name the turn's own home."""
    listed = subprocess.run(["ps", "-eo", "pid=,args="], capture_output=True, text=True, check=False).stdout
    for row in listed.splitlines():
        pid, _, arguments = row.strip().partition(" ")
        if str(home) in arguments:
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def said(errors):
    """The number of requests that `antiphon run` reports."""
    found = re.search(r"^antiphon: (\d+) requests?\b", errors, re.M)
    return int(found[1]) if found else 0


def counted(proxy):
    """The number of requests that a proxy has counted."""
    rows = re.findall(r"^antiphon_requests_total\{.*\} (\d+)", fetch(f"{proxy[1]}/metrics"), re.M)
    return sum(map(int, rows))
