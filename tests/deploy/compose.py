"""The compose file, and the set-up that it describes as processes on loopback: no container engine is needed."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import yaml

from expressions import DEPLOY
from running import free_port, stop, wait

FOLDER = DEPLOY / "compose"
DOCKERFILE = DEPLOY.parent / "Dockerfile"
TOKEN = "the-admin-token"
# The user of the image.
USER = "65532:65532"


def compose(folder=FOLDER):
    """The compose file of a folder."""
    return yaml.safe_load((folder / "compose.yaml").read_text())


def compose_command():
    """The command that reads compose files; None where there is none."""
    if shutil.which("docker") and subprocess.run(["docker", "compose", "version"], capture_output=True).returncode == 0:
        return ["docker", "compose"]
    return ["docker-compose"] if shutil.which("docker-compose") else None


def image_environment():
    """The variables of the image."""
    last_stage = DOCKERFILE.read_text().partition("\nFROM scratch")[2]
    lines = re.findall(r"^ENV ((?:.*\\\n)*.*)$", last_stage, re.MULTILINE)
    return dict(pair.split("=", 1) for line in lines for pair in line.replace("\\\n", " ").split())


def service_faults(file, proxy, folder=FOLDER):
    """What is wrong with a compose file, as far as one Antiphon in it is concerned, and with what is around it."""
    allowed = proxy["environment"]["ANTIPHON_ALLOW_HOSTS"].split(",")
    for name, url in file["services"]["agent"]["environment"].items():
        if name.endswith("_BASE_URL") and urllib.parse.urlsplit(url).hostname not in allowed:
            yield f"{name} names a host that ANTIPHON_ALLOW_HOSTS does not: {url}"
    for service in file["services"].values():
        for secret in service.get("secrets", []):
            if secret not in file["secrets"]:
                yield f"there is no secret {secret}"
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith(".") and not (folder / source).exists():
                yield f"there is no {source}"
    for name, path in proxy["environment"].items():
        if name.endswith("_FILE") and path not in [f"/run/secrets/{secret}" for secret in proxy["secrets"]]:
            yield f"{name} is in no secret: {path}"
    for port in [port for service in file["services"].values() for port in service.get("ports", [])]:
        if not port.startswith("127.0.0.1:"):
            yield f"a port is open to other machines: {port}"
    scraped = yaml.safe_load((folder / "prometheus.yml").read_text())["scrape_configs"][0]
    if scraped["authorization"]["credentials_file"] != proxy["environment"]["ANTIPHON_ADMIN_TOKEN_FILE"]:
        yield "Prometheus reads another token"
    for target in [target for group in scraped["static_configs"] for target in group["targets"]]:
        host, _, port = target.partition(":")
        is_known = host in allowed and host in file["services"]
        if not is_known or not proxy["environment"]["ANTIPHON_ADMIN_LISTEN"].endswith(f":{port}"):
            yield f"Prometheus asks {target}, which does not answer"


def compose_faults():
    """What is wrong with the compose file by itself."""
    file = compose()
    proxy = file["services"]["antiphon"]
    yield from service_faults(file, proxy)
    state = image_environment()["XDG_STATE_HOME"]
    if not any(volume.endswith(f":{state}") for volume in proxy["volumes"]):
        yield f"no volume at {state}"
    if f"--chown={USER} /state {state}\n" not in DOCKERFILE.read_text():
        yield f"the image has no {state} that belongs to {USER}"


@contextmanager
def container(binary, provider):
    """The service `antiphon` as a process on other ports: (data URL, admin URL, folder with the token)."""
    data, admin = free_port(), free_port()
    with tempfile.TemporaryDirectory() as home:
        token = Path(home) / "admin-token"
        token.write_text(TOKEN + "\n")
        variables = image_environment() | compose()["services"]["antiphon"]["environment"]
        # Only what belongs to the machine is replaced: ports, folders, and the provider.
        variables |= {
            "ANTIPHON_LISTEN": variables["ANTIPHON_LISTEN"].replace("4747", str(data)),
            "ANTIPHON_ADMIN_LISTEN": variables["ANTIPHON_ADMIN_LISTEN"].replace("4748", str(admin)),
            "ANTIPHON_ADMIN_TOKEN_FILE": str(token),
            "XDG_STATE_HOME": f"{home}/state",
            "ANTIPHON_UPSTREAM": f"anthropic={provider.url}",
        }
        keep = {key: value for key, value in os.environ.items() if not key.startswith(("ANTIPHON_", "XDG_", "HOME"))}
        with open(Path(home) / "log", "w+b") as log:
            process = subprocess.Popen([str(binary)], cwd=home, env=keep | variables, stdout=log, stderr=log)
            try:
                wait(process, log, f"http://127.0.0.1:{admin}")
                yield f"http://127.0.0.1:{data}", f"http://127.0.0.1:{admin}", Path(home)
            finally:
                stop(process)


def ask(url, host, body=None, **headers):
    """The status of a request under a host name, with its content type."""
    data = None if body is None else json.dumps(body).encode()
    fields = {"host": host} | {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, fields), timeout=20) as answer:
            answer.read()
            return answer.status, answer.headers["content-type"]
    except urllib.error.HTTPError as error:
        error.read()
        return error.code, error.headers["content-type"]


def check_container(binary, provider):
    """The container is reached by the agent, by Prometheus and from the host, and by nobody else."""
    from traffic import BROKEN, body

    bearer = {"authorization": f"Bearer {TOKEN}"}
    agent = {"content_type": "application/json", "x_api_key": "sk-agent"}
    opened = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    with container(binary, provider) as (data, admin, home):
        for name, due, (came, kind) in [
            ("the agent", 200, ask(f"{data}/anthropic/v1/messages", "antiphon:4747", body(BROKEN), **agent)),
            ("a client on the host", 200, ask(f"{data}/anthropic/v1/messages", "127.0.0.1:4747", body(BROKEN), **agent)),
            ("a client under another name", 403, ask(f"{data}/anthropic/v1/messages", "evil:4747", body(BROKEN), **agent)),
            ("a health check by address", 200, ask(f"{admin}/readyz", "172.18.0.2:4748")),
            ("the page of the dashboard", 200, ask(f"{admin}/", "127.0.0.1:4748")),
            ("the dashboard without token", 401, ask(f"{admin}/admin/v1/status", "127.0.0.1:4748")),
            ("the dashboard with token", 200, ask(f"{admin}/admin/v1/status", "127.0.0.1:4748", **bearer)),
            ("metrics without token", 401, ask(f"{admin}/metrics", "antiphon:4748")),
            ("metrics as text", 200, ask(f"{admin}/metrics", "antiphon:4748", **bearer)),
            ("metrics for Prometheus", 200, ask(f"{admin}/metrics", "antiphon:4748", accept=opened, **bearer)),
            ("metrics under another name", 403, ask(f"{admin}/metrics", "evil:4748", **bearer)),
        ]:
            wrong = "" if came == due else f"{came}, not {due}"
            if name == "metrics as text" and not kind.startswith("text/plain; version=0.0.4"):
                wrong = kind
            if name == "metrics for Prometheus" and not kind.startswith("application/openmetrics-text"):
                wrong = kind
            yield f"container: {name}", wrong
        checked = subprocess.run(
            [str(binary), "healthcheck", "--url", f"{admin}/livez"], capture_output=True, text=True, check=False
        )
        yield "container: its health check", checked.stderr.strip()
        yield "container: the ledger is in the volume", "" if (home / "state/antiphon/ledger.db").is_file() else "it is not"
        warned = [line for line in (home / "log").read_text().splitlines() if '"level":"WARN"' in line]
        # The provider of this test is on loopback, so nothing at all should be warned about at the start.
        yield "container: no warning", "; ".join(line for line in warned if "exchange" not in line)
        yield from check_scrape(admin, home)


def check_scrape(admin, home):
    """A real Prometheus scrapes the container under the name of its service, with the token from the file."""
    program = shutil.which("prometheus")
    if not program:
        print("skipped: prometheus is not installed")
        return
    from prometheus import prometheus, replaced

    text = replaced(
        (FOLDER / "prometheus.yml").read_text(),
        ("/run/secrets/admin-token", str(home / "admin-token")),
        # The name `antiphon` exists only among containers. As a forward proxy of its own the listener gets the request
        # for http://antiphon:4748/metrics all the same.
        ('targets: ["antiphon:4748"]', f'targets: ["antiphon:4748"]\n    proxy_url: {admin}'),
    )
    with prometheus(program, text) as api:
        for target in api.get("targets", state="active")["activeTargets"]:
            yield f"container: the scrape of {target['scrapeUrl']}", "" if target["health"] == "up" else target["lastError"]
