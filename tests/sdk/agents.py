"""Two coding agents that install from npm, driven without a terminal: opencode and pi."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from install import HERE, TARGET, complaint, stamp
from strict.reply import WORDS

SECONDS = 90
PROMPT = "Say hello."


@dataclass
class Agent:
    """One agent with one API: `run` says whether the user got the whole answer, and what was printed."""

    name: str
    start: object
    home: Path

    def run(self, direct, through):
        """Asks the provider, or the proxy at `through`."""
        # Kept from run to run: opencode takes most of a minute to set up a new one.
        home = self.home / "homes" / self.name.replace(" ", "-")
        home.mkdir(parents=True, exist_ok=True)
        command, more = self.start(self.home, home, direct, through)
        keep = {key: value for key, value in os.environ.items() if not key.startswith(("ANTIPHON_", "XDG_"))}
        # opencode looks for its project where the shell says that it is.
        env = keep | {"HOME": str(home), "PWD": str(home)} | more
        try:
            done = subprocess.run(
                command,
                cwd=home,
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False, f"still running after {SECONDS} s"
        return done.returncode == 0 and WORDS in done.stdout, (done.stdout + done.stderr).strip()[-500:]


def opencode(installed, home, direct, through):
    # Through Antiphon with the base URL that it prints, which has no version.
    url = f"{through}/anthropic" if through else f"{direct}/v1"
    model = "anthropic/claude-sonnet-4-5"
    options = {"baseURL": url, "apiKey": "sk-test"}
    config = {"model": model, "small_model": model, "provider": {"anthropic": {"options": options}}}
    (home / "opencode.json").write_text(json.dumps(config | {"autoupdate": False, "share": "disabled"}))
    silent = {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
    return [opencode_binary(installed), "run", PROMPT], silent


def opencode_binary(installed):
    """The binary for this machine: the package's own script would have linked it."""
    found = sorted((installed / "node_modules").glob("opencode-*/bin/opencode"))
    if not found:
        raise RuntimeError("opencode has no binary for this machine")
    return str(found[-1])


def pi(api, prefix, version):
    def start(installed, home, direct, through):
        url = f"{through}/{prefix}{version}" if through else f"{direct}{version}"
        provider = {"baseUrl": url, "api": api, "apiKey": "sk-test", "models": [{"id": "m"}]}
        folder = home / ".pi" / "agent"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "models.json").write_text(json.dumps({"providers": {"test": provider}}))
        (folder / "settings.json").write_text(json.dumps({"retry": {"baseDelayMs": 200}}))
        command = str(installed / "node_modules" / ".bin" / "pi")
        return [command, "-p", "--provider", "test", "--model", "m", "--no-session", PROMPT], {"PI_OFFLINE": "1"}

    return start


STARTS = {
    "opencode anthropic": opencode,
    "pi anthropic": pi("anthropic-messages", "anthropic", ""),
    "pi chat": pi("openai-completions", "openai", "/v1"),
    "pi responses": pi("openai-responses", "openai", "/v1"),
    "pi gemini": pi("google-generative-ai", "gemini", "/v1beta"),
}


def installed_agents():
    """The agents, installed below target; none, with a word why, where they cannot be."""
    npm = shutil.which("npm")
    if not npm or not shutil.which("node"):
        print("skipped: the agents: node or npm is not installed")
        return []
    home = TARGET / "sdk-agents"
    home.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "agents.json", home / "package.json")
    mark = stamp(home, home / "package.json")
    if not mark.exists():
        install = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        done = subprocess.run(install, cwd=home, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(f"skipped: the agents: npm cannot install them: {complaint(done)[0]}")
            return []
        mark.touch()
    return [Agent(name, start, home) for name, start in STARTS.items()]
