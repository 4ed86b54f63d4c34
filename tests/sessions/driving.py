"""Runs a coding agent for one prompt against a provider on loopback, in a home of its own."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

SECONDS = 180
KEPT = ("PATH", "LANG", "SYSTEMROOT")
CODEX = """model = "gpt-5-codex"
model_provider = "fixture"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.fixture]
name = "fixture"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "FIXTURE_KEY"
request_max_retries = 0
stream_max_retries = 0
"""


# Copilot CLI takes a provider of one's own by environment (`copilot help providers`).
COPILOT = {
    "COPILOT_PROVIDER_TYPE": "anthropic",
    "COPILOT_PROVIDER_API_KEY": "sk-fixture",
    "COPILOT_MODEL": "claude-sonnet-4.5",
    "COPILOT_OFFLINE": "true",
    "COPILOT_AUTO_UPDATE": "false",
}
QWEN = {"ANTHROPIC_API_KEY": "sk-fixture", "ANTHROPIC_MODEL": "claude-sonnet-4-5", "QWEN_CODE_DISABLE_UPDATE": "1"}
# Where each keeps its sessions, below its home.
PLACES = {
    "claude-code": ".claude/projects/**/*.jsonl",
    "codex": ".codex/sessions/**/rollout-*.jsonl",
    "copilot": ".copilot/session-state/*/events.jsonl",
    "qwen-code": ".qwen/projects/*/chats/*.jsonl",
}


@dataclass
class Home:
    """A home and a working folder for one client. Both are temporary."""

    client: str
    command: list
    home: Path
    work: Path

    def __post_init__(self):
        self.home.mkdir(parents=True, exist_ok=True)
        self.work.mkdir(parents=True, exist_ok=True)

    def environment(self, url):
        env = {name: os.environ[name] for name in KEPT if name in os.environ} | {"HOME": str(self.home)}
        if self.client == "codex":
            folder = self.home / ".codex"
            folder.mkdir(exist_ok=True)
            (folder / "config.toml").write_text(CODEX.format(url=url), "utf-8")
            return env | {"FIXTURE_KEY": "sk-fixture"}
        if self.client == "copilot":
            return env | COPILOT | {"COPILOT_PROVIDER_BASE_URL": url}
        if self.client == "qwen-code":
            return env | QWEN | {"ANTHROPIC_BASE_URL": url}
        env |= {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "sk-fixture", "IS_SANDBOX": "1"}
        # No traffic beside the conversation, and no second try after a refusal.
        env |= {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
        return env | {"CLAUDE_CODE_MAX_RETRIES": "0", "ANTHROPIC_MODEL": "claude-sonnet-4-5-20250929"}

    def arguments(self, prompt, session, resume):
        if self.client == "codex":
            begin = ["exec", "resume", session] if resume else ["exec"]
            return [*begin, "--skip-git-repo-check", prompt]
        if self.client == "copilot":
            return [f"--resume={session}" if resume else f"--session-id={session}", "--allow-all-tools", "-p", prompt]
        if self.client == "qwen-code":
            begin = ["--resume", session] if resume else ["--session-id", session]
            return [*begin, "--auth-type", "anthropic", "--yolo", "-p", prompt]
        begin = ["--resume", session] if resume else ["--session-id", session]
        return [*begin, "--allowedTools", "Bash Read Task Agent", "-p", prompt]

    def ask(self, provider, prompt, session, resume=False):
        """Asks once: the exit code, and what was printed."""
        try:
            done = subprocess.run(
                [*self.command, *self.arguments(prompt, session, resume)],
                cwd=self.work,
                env=self.environment(provider.url),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return 124, "no end within the time"
        return done.returncode, (done.stdout + done.stderr).strip()

    def session_files(self):
        """The session files in this home, the oldest first."""
        return sorted(self.home.glob(PLACES[self.client]), key=lambda file: file.stat().st_mtime_ns)
