"""A running Antiphon in front of a provider."""

import os
import random
import socket
import subprocess
import tempfile
import time
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path


def free_port():
    """Returns a free port outside the range from which systems choose: nobody else gets it before it is bound."""
    while True:
        port = random.randrange(12_000, 30_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def fetch(url):
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read().decode()


@contextmanager
def antiphon(binary, upstreams, provider, config="", state=None):
    """Runs the binary, every upstream being the provider, with a configuration's text: (data URL, admin URL).

    `state` is its state folder, if it is to outlive the process.
    """
    data, admin = free_port(), free_port()
    command = [str(binary), "serve", "--listen", f"127.0.0.1:{data}", "--admin-listen", f"127.0.0.1:{admin}"]
    for name in upstreams:
        command += ["--upstream", f"{name}={provider.url}"]
    with tempfile.TemporaryDirectory() as home:
        if config:
            (Path(home) / "antiphon.toml").write_text(config)
            command += ["--config", "antiphon.toml"]
        keep = {key: value for key, value in os.environ.items() if not key.startswith("ANTIPHON_")}
        homes = {key: home for key in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")}
        if state:
            homes["XDG_STATE_HOME"] = str(state)
        log = open(Path(home) / "log", "w+b")
        process = subprocess.Popen(command, cwd=home, env=keep | homes, stdout=log, stderr=log)
        try:
            wait(process, log, f"http://127.0.0.1:{admin}")
            yield f"http://127.0.0.1:{data}", f"http://127.0.0.1:{admin}"
        finally:
            stop(process)
            log.close()


def stop(process):
    """Ends it, and waits until it has ended."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait(process, log, admin):
    """Until it is ready, or the reason why not."""
    for _ in range(150):
        if process.poll() is not None:
            break
        try:
            fetch(f"{admin}/readyz")
            return
        except OSError:
            time.sleep(0.1)
    log.seek(0)
    raise RuntimeError(f"{process.args} did not get ready: {log.read().decode(errors='replace')[-2000:]}")
