"""The agents of docs/clients.md, and how each is asked once without a terminal.

Commands and settings that the document has are read from it. Only what asks the question is added here.
"""

import base64
import json
from dataclasses import dataclass, field

from walk_docs import PROXY, block, line, quoted
from walk_turn import KEYS, PROMPT, Turn

RUN, SETTING, LOGIN = COLUMNS = ("run", "setting", "login")
ANTHROPIC = ("x-api-key", KEYS["ANTHROPIC_API_KEY"])
OPENAI = ("authorization", f"Bearer {KEYS['OPENAI_API_KEY']}")
GEMINI = ("x-goog-api-key", KEYS["GEMINI_API_KEY"])
ASK = f"'{PROMPT}'"


@dataclass
class Agent:
    """An agent: its package, and a function that yields its turns, each behind its column of the table."""

    name: str
    program: str
    # A package of npm, or of PyPI with `pip:` in front.
    package: str
    turns: object
    variables: dict = field(default_factory=dict)
    # Where its programs are, after it is installed.
    folders: list = field(default_factory=list)


# Logins that nobody has made.

FAR = 4102444800
CLAUDE_TOKEN = "sk-ant-oat01-" + "walk" * 20
GOOGLE_TOKEN = "ya29.walk"
ACCOUNT = {"chatgpt_account_id": "00000000-0000-4000-8000-000000000001", "chatgpt_plan_type": "plus"}


def unsigned_token(claims):
    """A token that can be read, with a signature that is none."""
    parts = [json.dumps(part).encode() for part in ({"alg": "RS256", "typ": "JWT"}, claims)]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in [*parts, b"signature"])


CHATGPT_TOKEN = unsigned_token({"exp": FAR, "email": "walk@example.com", "https://api.openai.com/auth": ACCOUNT})


def codex_login():
    tokens = {"id_token": CHATGPT_TOKEN, "access_token": CHATGPT_TOKEN, "refresh_token": "walk"}
    tokens["account_id"] = ACCOUNT["chatgpt_account_id"]
    return json.dumps({"OPENAI_API_KEY": None, "tokens": tokens, "last_refresh": "2099-01-01T00:00:00Z"})


def without(*names):
    """Variables that hide the user's keys, so that the login is used."""
    return dict.fromkeys(names)


# The turns, each behind its column of the table.


def claude():
    setting = block("Claude Code", "export ANTHROPIC_BASE_URL")
    yield RUN, Turn(f"antiphon run -- claude -p {ASK}", ANTHROPIC)
    yield SETTING, Turn(f"{setting} -p {ASK}", ANTHROPIC)
    bearer = ("authorization", f"Bearer {CLAUDE_TOKEN}")
    login = without("ANTHROPIC_API_KEY") | {"CLAUDE_CODE_OAUTH_TOKEN": CLAUDE_TOKEN}
    yield LOGIN, Turn(f"antiphon run -- claude -p {ASK}", bearer, variables=login)
    yield LOGIN, Turn(f"{setting} -p {ASK}", bearer, variables=login)


def codex():
    ask = f"exec --skip-git-repo-check {ASK}"
    key = {".codex/auth.json": json.dumps({"OPENAI_API_KEY": KEYS["OPENAI_API_KEY"]})}
    yield RUN, Turn(f"antiphon run -- codex {ask}", OPENAI, key)
    yield SETTING, Turn(f"{line('Codex', 'codex -c', '/openai/v1')} {ask}", OPENAI, key)
    provider = block("Codex", "model_provider")
    yield SETTING, Turn(f"codex {ask}", OPENAI, {".codex/config.toml": provider})
    login, hidden = {".codex/auth.json": codex_login()}, without("OPENAI_API_KEY")
    bearer = ("authorization", f"Bearer {CHATGPT_TOKEN}")
    yield LOGIN, Turn(f"{line('Codex', 'antiphon run')} {ask}", bearer, login, hidden)
    yield LOGIN, Turn(f"{line('Codex', 'codex -c', '/chatgpt')} {ask}", bearer, login, hidden)
    url = quoted("Codex", PROXY)
    provider = provider.replace(f"{PROXY}/openai/v1", url)
    provider = provider.replace('env_key = "OPENAI_API_KEY"', quoted("Codex", "requires_openai_auth"))
    yield LOGIN, Turn(f"codex {ask}", bearer, login | {".codex/config.toml": provider}, hidden)


def gemini():
    ask = f"--skip-trust -p {ASK}"
    # Without this choice, which users make once, gemini -p refuses every base URL of the environment.
    chosen = {".gemini/settings.json": json.dumps({"security": {"auth": {"selectedType": "gemini-api-key"}}})}
    yield RUN, Turn(f"antiphon run -- gemini {ask}", GEMINI, chosen)
    yield SETTING, Turn(f"{block('gemini-cli', 'export')} {ask}", GEMINI, chosen)
    bearer = ("authorization", f"Bearer {GOOGLE_TOKEN}")
    # A token in a file would be shown to Google first.
    login = without("GEMINI_API_KEY") | {"GOOGLE_GENAI_USE_GCA": "true", "GOOGLE_CLOUD_ACCESS_TOKEN": GOOGLE_TOKEN}
    yield LOGIN, Turn(f"{line('gemini-cli', 'antiphon run')} {ask}", bearer, variables=login)
    endpoint = quoted("gemini-cli", "CODE_ASSIST_ENDPOINT=")
    yield LOGIN, Turn(f"{endpoint} gemini {ask}", bearer, variables=login)


def copilot():
    yield RUN, Turn(f"{line('Copilot CLI', 'COPILOT_MODEL=')} -p {ASK}", OPENAI)
    anthropic = {"COPILOT_PROVIDER_TYPE": "anthropic"}
    yield RUN, Turn(f"COPILOT_MODEL=claude-sonnet-4-5 antiphon run -- copilot -p {ASK}", ANTHROPIC, variables=anthropic)
    setting = block("Copilot CLI", "export COPILOT_PROVIDER_TYPE")
    yield SETTING, Turn(f"{setting} -p {ASK}", OPENAI)
    responses = f"export {quoted('Copilot CLI', 'COPILOT_PROVIDER_WIRE_API=')}"
    yield SETTING, Turn(f"{responses}\n{setting} -p {ASK}", OPENAI)


def opencode():
    models = ("anthropic/claude-sonnet-4-5", ANTHROPIC), ("openai/gpt-5", OPENAI), ("google/gemini-2.5-pro", GEMINI)
    file = {"work/opencode.json": block("opencode", "baseURL")}
    for model, credential in models:
        yield RUN, Turn(f"antiphon run -- opencode run --model {model} {ASK}", credential)
        yield SETTING, Turn(f"opencode run --model {model} {ASK}", credential, file)


def qwen():
    ask = f"--model gpt-5.2 -p {ASK}"
    yield RUN, Turn(f"{line('Qwen Code', 'antiphon run')} {ask}", OPENAI)
    yield SETTING, Turn(f"{quoted('Qwen Code', 'OPENAI_BASE_URL=')} qwen --auth-type openai {ask}", OPENAI)


def aider():
    ask = f"--no-git --yes-always --message {ASK}"
    documented = "--model anthropic/claude-sonnet-4-5"
    models = (documented, ANTHROPIC), ("--model openai/gpt-5", OPENAI), ("--model gemini/gemini-2.5-pro", GEMINI)
    for model, credential in models:
        yield RUN, Turn(f"{line('aider', 'antiphon run')} {ask}".replace(documented, model), credential)
        yield SETTING, Turn(f"{block('aider', 'export')} {ask}".replace(documented, model), credential)


def cline():
    ask = f"cline {ASK}"
    yield RUN, Turn(f"antiphon run -- {ask}", OPENAI, advice="cline auth openai-native -k KEY -m MODEL -b http")
    yield SETTING, Turn(f"{line('Cline', 'cline auth')}\n{ask}", OPENAI)


def continue_():
    ask = f"cn -p {ASK}"
    yield RUN, Turn(f"antiphon run -- {ask}", ANTHROPIC, advice="apiBase: http")
    yield SETTING, Turn(ask, ANTHROPIC, {".continue/config.yaml": block("Continue", "apiBase")})


def pi():
    ask = f"--model claude-sonnet-4-5 --no-session -p {ASK}"
    yield RUN, Turn(f"antiphon run -- pi --provider anthropic {ask}", ANTHROPIC)
    file = {".pi/agent/models.json": block("pi", "baseUrl")}
    yield SETTING, Turn(f"pi --provider anthropic {ask}", ANTHROPIC, file)


def hermes():
    ask = f"hermes chat -Q -m gpt-5.2 -q {ASK}"
    yield RUN, Turn(f"antiphon run -- {ask}", OPENAI, advice="base_url: http")
    yield SETTING, Turn(ask, OPENAI, {".hermes/config.yaml": block("Hermes", "base_url")})


def openclaw():
    ask = f"openclaw agent --local --agent main --model anthropic/claude-sonnet-4-5 --message {ASK}"
    yield RUN, Turn(f"antiphon run -- {ask}", ANTHROPIC, advice='"baseUrl": "http')
    yield SETTING, Turn(ask, ANTHROPIC, {".openclaw/openclaw.json": block("openclaw", "baseUrl")})


# opencode reads Google's key from a variable of its own.
OPENCODE = {"OPENCODE_DISABLE_MODELS_FETCH": "1", "GOOGLE_GENERATIVE_AI_API_KEY": KEYS["GEMINI_API_KEY"]}

AGENTS = [
    Agent("Claude Code", "claude", "@anthropic-ai/claude-code", claude),
    Agent("Codex", "codex", "@openai/codex", codex),
    Agent("gemini-cli", "gemini", "@google/gemini-cli", gemini),
    Agent("Copilot CLI", "copilot", "@github/copilot", copilot),
    Agent("opencode", "opencode", "opencode-ai", opencode, variables=OPENCODE),
    Agent("Qwen Code", "qwen", "@qwen-code/qwen-code", qwen),
    Agent("aider", "aider", "pip:aider-chat", aider),
    Agent("Cline", "cline", "cline", cline),
    Agent("Continue", "cn", "@continuedev/cli", continue_),
    Agent("pi", "pi", "@mariozechner/pi-coding-agent", pi, variables={"PI_OFFLINE": "1"}),
    Agent("Hermes", "hermes", "pip:hermes-agent", hermes),
    Agent("openclaw", "openclaw", "openclaw", openclaw),
]
