"""A real Prometheus that scrapes the proxy, with a storage that goes away."""

import json
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from pathlib import Path

from expressions import DEPLOY, RULES
from running import free_port, stop

# Scrapes that rates need, and how long they may take to come, in seconds.
SCRAPES = 5
PATIENCE = 60


class Prometheus:
    """Its HTTP API."""

    def __init__(self, url):
        self.url = url

    def get(self, path, **query):
        """The data of an answer; an error of Prometheus' own is raised in its words."""
        asked = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query, doseq=True)}"
        try:
            with urllib.request.urlopen(asked, timeout=20) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error).get("error", error)) from None

    def query(self, expression):
        """The series that an expression gives now."""
        return self.get("query", query=expression)["result"]

    def wait(self, process, log):
        """Until it has scraped the proxy often enough, and evaluated every rule."""
        end = time.monotonic() + PATIENCE
        last = "it did not answer"
        while time.monotonic() < end and process.poll() is None:
            try:
                scraped = self.query('count_over_time(up{job="antiphon"}[5m])')
                groups = self.get("rules")["groups"]
                evaluated = [rule["health"] != "unknown" for group in groups for rule in group["rules"]]
                if scraped and int(scraped[0]["value"][1]) >= SCRAPES and evaluated and all(evaluated):
                    return
                last = f"scraped: {scraped}, rules evaluated: {sum(evaluated)} of {len(evaluated)}"
            except (OSError, RuntimeError) as error:
                last = str(error)
            time.sleep(0.3)
        log.seek(0)
        raise RuntimeError(f"{last}\n{log.read().decode(errors='replace')[-2000:]}")


def replaced(text, *changes):
    """A configuration with other values behind its first comment, and in a hurry."""
    before, _, settings = text.partition("global:")
    for old, new in [*changes, ("_interval: 15s", "_interval: 1s"), ("antiphon.rules.yml", str(RULES))]:
        if old not in settings:
            raise RuntimeError(f"the configuration has no {old}")
        settings = settings.replace(old, new)
    return before + "global:" + settings


def configured(admin):
    """The example configuration, towards this proxy."""
    text = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
    return replaced(text, ("127.0.0.1:4748", admin.removeprefix("http://")))


@contextmanager
def prometheus(binary, config):
    """Prometheus at work with a configuration, once it has seen the proxy."""
    port = free_port()
    with tempfile.TemporaryDirectory() as home, open(Path(home) / "log", "w+b") as log:
        (Path(home) / "prometheus.yml").write_text(config)
        command = [binary, f"--config.file={home}/prometheus.yml", f"--storage.tsdb.path={home}/data"]
        command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
        process = subprocess.Popen(command, cwd=home, stdout=log, stderr=log)
        try:
            api = Prometheus(f"http://127.0.0.1:{port}")
            api.wait(process, log)
            yield api
        finally:
            stop(process)
