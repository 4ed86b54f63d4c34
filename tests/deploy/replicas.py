"""The compose file with several replicas, and the set-up that it describes as processes on loopback.

    python3 tests/deploy/replicas.py [PATH OF THE BINARY]    default: $ANTIPHON_BIN, else target/debug/antiphon

Two replicas and a PostgreSQL run behind HAProxy, with the variables and files of deploy/compose-replicas. Only what
belongs to the machine is replaced: addresses, the paths of secrets, and the provider. Without PostgreSQL each replica
has a ledger in memory, and without HAProxy nothing runs; both is said. Needs PyYAML, which run.py installs.
"""

import http.client
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager, nullcontext
from http.server import ThreadingHTTPServer
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "sdk"))

import rolling  # noqa: E402
from compose import TOKEN, compose, compose_command, image_environment, service_faults  # noqa: E402
from database import Database, binaries  # noqa: E402
from expressions import DEPLOY  # noqa: E402
from rolling import EVENT_PAUSE, STREAM_EVENTS, Traffic, tool  # noqa: E402
from running import free_port, stop, wait  # noqa: E402
from traffic import BROKEN, HEALTHY, body  # noqa: E402

FOLDER = DEPLOY / "compose-replicas"
BALANCER = FOLDER / "haproxy.cfg"
CONFIG = FOLDER / "antiphon.toml"
REPLICAS = ("antiphon-a", "antiphon-b")
MESSAGES = "/anthropic/v1/messages"
SESSION_HEADERS = ("x-antiphon-session", "x-claude-code-session-id", "session_id")
# More than enough for the hash to give each replica some of them.
SESSIONS = 12
PATIENCE = 30
# The proxy needs this much longer than its drain, as docs/operations.md says.
END_SECONDS = 6


def seconds(text):
    """A time such as 30s."""
    return int(re.fullmatch(r"(\d+)s", text)[1])


# The files by themselves.


def replica_faults():
    """What is wrong with the compose file by itself, and with the configurations that it mounts."""
    file = compose(FOLDER)
    services, config = file["services"], tomllib.loads(CONFIG.read_text())
    first = services[REPLICAS[0]]
    yield from service_faults(file, first, FOLDER)
    for name in REPLICAS[1:]:
        if {**services[name], "ports": None} != {**first, "ports": None}:
            yield f"{name} differs from {REPLICAS[0]} in more than its ports"
    variables = first["environment"]
    url = variables.get("ANTIPHON_LEDGER_URL_FILE")
    if url != "/run/secrets/ledger-url" or config["ledger"]["store"] != "postgres":
        yield "the replicas do not share a database whose URL is a secret"
    if f"{CONFIG.name}:{variables['ANTIPHON_CONFIG']}" not in str(first["volumes"]):
        yield "the configuration is not mounted where it is read"
    ends = seconds(variables["ANTIPHON_DRAIN_TIMEOUT"]) + seconds(config["server"]["drain_delay"]) + END_SECONDS
    if ends >= seconds(first["stop_grace_period"]):
        yield f"a replica may need {ends} s to end, and is killed before"
    yield from database_faults(file)
    yield from balancer_faults(file)


def database_faults(file):
    """What is wrong with the database of the compose file."""
    services, database = file["services"], file["services"]["database"]
    for name, service in services.items():
        for variable, value in service.get("environment", {}).items():
            if "PASSWORD" in variable and value != "/run/secrets/database-password":
                yield f"{name}: {variable} has a password"
            if re.search(r"postgres(ql)?://", str(value)):
                yield f"{name}: {variable} has the URL of the database"
    if database["environment"]["POSTGRES_PASSWORD_FILE"] != f"/run/secrets/{database['secrets'][0]}":
        yield "the database reads no secret"
    volume = database["volumes"][0].split(":")
    if volume[0] not in file["volumes"] or volume[1] != "/var/lib/postgresql/data":
        yield "the database has no named volume"
    if "healthcheck" not in database:
        yield "the health of the database is not checked"
    reached = {name for name, service in services.items() if "database" in service.get("networks", ["default"])}
    if reached != {*REPLICAS, "database"} or not file["networks"]["database"]["internal"] or "ports" in database:
        yield f"the database can be reached by {sorted(reached)}"


def balancer_faults(file):
    """What is wrong with the balancer: its servers are those of the compose file, and it waits long enough."""
    config, balancer = BALANCER.read_text(), file["services"]["balancer"]
    servers = dict(re.findall(r"^  server (\S+) (\S+)", config, re.MULTILINE))
    if servers != {name: f"{name}:4747" for name in REPLICAS}:
        yield f"the balancer's servers are {servers}"
    if not any(port.endswith(":4747") for port in balancer["ports"]) or "\n  bind :4747\n" not in config:
        yield "the port of the balancer is not that of its configuration"
    if f"./{BALANCER.name}:/usr/local/etc/haproxy/haproxy.cfg:ro" not in balancer["volumes"]:
        yield "the balancer reads another configuration"
    if seconds(re.search(r"hard-stop-after (\S+)", config)[1]) >= seconds(balancer["stop_grace_period"]):
        yield "the balancer is killed before its answers have ended"
    # The balancer must be the last one to lose patience.
    total = tomllib.loads((DEPLOY.parent / "config.example.toml").read_text())["timeouts"]["total"]
    for side in ("client", "server"):
        if seconds(re.search(rf"timeout {side} (\S+)", config)[1]) < seconds(total):
            yield f"timeout {side} is shorter than timeouts.total"
    checked = re.search(r"check port (\d+) inter (\d+)s fall (\d+)", config)
    if f":{checked[1]}" not in file["services"][REPLICAS[0]]["environment"]["ANTIPHON_ADMIN_LISTEN"]:
        yield "the balancer asks another port for the health"
    if int(checked[2]) * int(checked[3]) >= seconds(tomllib.loads(CONFIG.read_text())["server"]["drain_delay"]):
        yield "drain_delay is over before the balancer notices"


def check_replica_files(binary):
    """The files are accepted by those who read them."""
    yield "the compose file of replicas fits to its configurations", "; ".join(replica_faults())
    if command := compose_command():
        wrong = done(*command, "-f", str(FOLDER / "compose.yaml"), "config", "-q")
        yield f"{' '.join(command)} config, replicas", wrong
    else:
        print("skipped: docker compose and docker-compose are not installed")
    if haproxy := tool("haproxy"):
        yield "haproxy -c", done(haproxy, "-c", "-q", "-f", str(BALANCER))
    with tempfile.TemporaryDirectory() as home:
        url = Path(home) / "url"
        sidecar = {"ANTIPHON_LEDGER_STORE": "postgres", "ANTIPHON_LEDGER_BYTES_MAX": "1GiB"}
        # As the files are, for a database on another host.
        for name, file, host, more in [
            ("replicas of compose", CONFIG, "database", {}),
            ("replicas of sidecars", DEPLOY / "kubernetes" / "antiphon.toml", "db.example.com", sidecar),
        ]:
            url.write_text(f"postgres://antiphon:0a1b@{host}/antiphon\n")
            variables = more | {"ANTIPHON_LEDGER_URL_FILE": str(url)}
            yield f"antiphon config check, {name}", done(str(binary), "config", "check", "-c", str(file), **variables)


def done(*command, **variables):
    """What is wrong with a command: nothing if it exits with 0, else what it said."""
    keep = {key: value for key, value in os.environ.items() if not key.startswith("ANTIPHON_")}
    ran = subprocess.run(command, env=keep | variables, capture_output=True, text=True, check=False)
    return "" if ran.returncode == 0 else (ran.stdout + ran.stderr).strip() or f"exit {ran.returncode}"


# The files at work.


class Provider(rolling.Provider):
    """The provider of the rolling restart. A request for the model `held` is never answered: its end is noted."""

    left = threading.Event()

    def do_POST(self):
        """Answers one request, or waits for its client to leave."""
        if b'"held"' not in self.rfile.peek(1):
            return super().do_POST()
        end = time.monotonic() + PATIENCE
        self.rfile.read(int(self.headers["content-length"]))
        while time.monotonic() < end:
            if select.select([self.connection], [], [], 0.1)[0] and not self.connection.recv(1):
                Provider.left.set()
                break
        self.close_connection = True


class Replica:
    """One Antiphon of the compose file as a process."""

    def __init__(self, binary, name, home, provider, url):
        self.binary, self.name, self.home = binary, name, home / name
        self.data, self.admin = free_port(), free_port()
        self.home.mkdir()
        (self.home / "admin-token").write_text(TOKEN + "\n")
        variables = image_environment() | compose(FOLDER)["services"][name]["environment"]
        variables |= {
            "ANTIPHON_CONFIG": str(CONFIG),
            "ANTIPHON_LISTEN": variables["ANTIPHON_LISTEN"].replace("4747", str(self.data)),
            "ANTIPHON_ADMIN_LISTEN": variables["ANTIPHON_ADMIN_LISTEN"].replace("4748", str(self.admin)),
            "ANTIPHON_ADMIN_TOKEN_FILE": str(self.home / "admin-token"),
            "ANTIPHON_LEDGER_URL_FILE": str(self.home / "ledger-url"),
            # The root of the container is read-only.
            "XDG_STATE_HOME": "/proc/none",
            "ANTIPHON_UPSTREAM": f"anthropic={provider}",
        }
        if url:
            (self.home / "ledger-url").write_text(url + "\n")
        else:
            del variables["ANTIPHON_LEDGER_URL_FILE"]
            variables["ANTIPHON_LEDGER_STORE"] = "memory"
        keep = {key: value for key, value in os.environ.items() if not key.startswith(("ANTIPHON_", "XDG_", "HOME"))}
        self.environment = keep | variables
        self.start()

    def start(self):
        """Starts it, and waits until it is ready."""
        with open(self.home / "log", "a+b") as log:
            command = [str(self.binary)]
            self.process = subprocess.Popen(command, cwd=self.home, env=self.environment, stdout=log, stderr=log)
            try:
                wait(self.process, log, f"http://127.0.0.1:{self.admin}")
            except RuntimeError:
                self.stop()
                raise

    def restart(self):
        """Ends it as Compose does, and starts it again. Returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        self.start()
        return code

    def stop(self):
        """Ends it."""
        if self.process.poll() is None:
            stop(self.process)

    def kill(self):
        """Ends it at once."""
        self.process.kill()
        self.process.wait()

    def served(self):
        """The number of its requests so far."""
        headers = {"authorization": f"Bearer {TOKEN}"}
        asked = urllib.request.Request(f"http://127.0.0.1:{self.admin}/metrics", headers=headers)
        with urllib.request.urlopen(asked, timeout=5) as answer:
            page = answer.read().decode()
        return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith("antiphon_requests_total{"))

    def lines(self):
        """The lines of its log."""
        return [json.loads(line) for line in (self.home / "log").read_text().splitlines() if line.startswith("{")]


class Balancer:
    """HAProxy with the configuration of the compose file."""

    def __init__(self, haproxy, home, replicas):
        port = free_port()
        self.url, self.address = f"http://127.0.0.1:{port}", ("127.0.0.1", port)
        text = BALANCER.read_text()
        changes = [("\n  bind :4747\n", f"\n  bind 127.0.0.1:{port}\n")]
        changes += [(f" {it.name}:4747\n", f" 127.0.0.1:{it.data} port {it.admin}\n") for it in replicas]
        for old, new in changes:
            if old not in text:
                raise RuntimeError(f"the configuration of the balancer has no {old.strip()}")
            text = text.replace(old, new)
        (home / "haproxy.cfg").write_text(text)
        with open(home / "balancer-log", "wb") as log:
            command = [haproxy, "-db", "-f", str(home / "haproxy.cfg")]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def stop(self):
        """Ends it."""
        self.process.kill()
        self.process.wait()

    def ask(self, host=None, sent=None, **headers):
        """The status of one request."""
        fields = {"content-type": "application/json", "x-api-key": "sk-client", "anthropic-version": "2023-06-01"}
        # The name under which the agent of the compose file calls it.
        fields |= {"host": host or "balancer:4747"} | headers
        asked = json.dumps(sent or body(HEALTHY)).encode()
        request = urllib.request.Request(self.url + MESSAGES, asked, fields)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                answer.read()
                return answer.status
        except urllib.error.HTTPError as error:
            error.read()
            return error.code
        except OSError as error:
            return str(error)

    def ask_all(self, **sent):
        """What is wrong with the answers to one request of each session."""
        came = {name: self.ask(**sent, **{"x-antiphon-session": name}) for name in sessions()}
        return "; ".join(f"{name}: {status}" for name, status in came.items() if status != 200)


def sessions():
    """The names of some sessions."""
    return [f"session-{number}" for number in range(SESSIONS)]


def served_by(replicas, requests):
    """The number of requests that each replica gets, of those that a call sends one after the other."""
    before = [replica.served() for replica in replicas]
    sent, end = requests(), time.monotonic() + PATIENCE
    while True:
        served = [int(replica.served() - count) for replica, count in zip(replicas, before)]
        # A replica counts a request a moment after its client has read the answer.
        if sum(served) >= sent or time.monotonic() > end:
            return served


def is_used(balancer, replica):
    """Waits until a replica gets requests."""
    before, end = replica.served(), time.monotonic() + PATIENCE
    while time.monotonic() < end:
        balancer.ask_all()
        if replica.served() > before:
            return True
    return False


@contextmanager
def set_up(binary, haproxy):
    """The replicas, the balancer in front, and the database behind: None where PostgreSQL is not installed."""
    provider = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    provider.daemon_threads = True
    threading.Thread(target=provider.serve_forever, daemon=True).start()
    folder = binaries()
    if not folder:
        print("skipped: PostgreSQL is not installed, so that the replicas share no ledger")
    with ExitStack() as stack:
        stack.callback(provider.shutdown)
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        database = stack.enter_context(Database(folder) if folder else nullcontext())
        upstream = f"http://127.0.0.1:{provider.server_port}"
        replicas = []
        for name in REPLICAS:
            replicas.append(Replica(binary, name, home, upstream, database and database.url))
            stack.callback(replicas[-1].stop)
        balancer = Balancer(haproxy, home, replicas)
        stack.callback(balancer.stop)
        for replica in replicas:
            if not is_used(balancer, replica):
                raise RuntimeError(f"{replica.name} gets no requests: {(home / 'balancer-log').read_text()[-2000:]}")
        yield replicas, balancer, database


def check_replicas(binary):
    """Sessions are spread over replicas that share a ledger, and go on when one of them dies or is replaced."""
    haproxy = tool("haproxy")
    if not haproxy:
        return
    with set_up(binary, haproxy) as (replicas, balancer, database):
        yield from check_requests(balancer)
        yield from check_sessions(balancer, replicas)
        yield from check_streams(balancer)
        if database:
            yield from check_shared(balancer, replicas, database)
        yield from check_death(balancer, replicas)
        yield from check_restarts(balancer, replicas)
        if database:
            database.stop()
            yield "replicas: requests go on without the database", balancer.ask_all()


def check_requests(balancer):
    """Clients of the balancer are those of the replicas."""
    for name, due, came in [
        ("the agent", 200, balancer.ask(sent=body(BROKEN))),
        ("a client on the host", 200, balancer.ask(host="127.0.0.1:4747")),
        ("a client under another name", 403, balancer.ask(host="evil:4747")),
    ]:
        yield f"replicas: {name}", "" if came == due else f"{came}, not {due}"


def check_sessions(balancer, replicas):
    """All requests of a session come to one replica, and those of all sessions to both."""
    for header in SESSION_HEADERS:
        chosen, faults = set(), []
        for name in sessions():
            served = served_by(replicas, lambda: len([balancer.ask(**{header: name}) for _ in range(3)]))
            if sorted(served) != [0, 3]:
                faults.append(f"{name}: {served}")
            chosen.add(served.index(max(served)))
        if len(chosen) != len(replicas):
            faults.append("all sessions are with one replica")
        yield f"replicas: sessions by {header}", "; ".join(faults)


def check_streams(balancer):
    """Events come one by one, and a client that leaves ends the provider's work."""
    connection = http.client.HTTPConnection(*balancer.address, timeout=20)
    headers = {"content-type": "application/json", "x-api-key": "sk-client"}
    connection.request("POST", MESSAGES, json.dumps(body(HEALTHY, stream=True)), headers)
    answer, times = connection.getresponse(), []
    while line := answer.readline():
        if line.startswith(b"event: ping"):
            times.append(time.monotonic())
    spread = times[-1] - times[0] if times else 0
    whole = (STREAM_EVENTS - 1) * EVENT_PAUSE
    wrong = "" if len(times) == STREAM_EVENTS and spread > whole / 2 else f"{len(times)} events within {spread:.1f} s"
    yield "replicas: events of a stream come one by one", wrong
    connection.request("POST", MESSAGES, json.dumps(body(HEALTHY) | {"model": "held"}), headers)
    time.sleep(1)
    connection.close()
    yield "replicas: a client that leaves cancels its exchange", "" if Provider.left.wait(PATIENCE) else "it goes on"


def check_shared(balancer, replicas, database):
    """Both replicas use the database of the compose file's URL, and start without a warning."""
    yield "replicas: requests that are repaired", balancer.ask_all(sent=body(BROKEN))
    ledgers = {line["ledger"] for replica in replicas for line in replica.lines() if "ledger" in line}
    yield "replicas: their ledger", "" if ledgers == {"PostgreSQL, antiphon at 127.0.0.1"} else f"{ledgers}"
    records = database.count("antiphon_records")
    yield "replicas: the records are in the database", "" if records else "there are none"
    warned = [line for replica in replicas for line in replica.lines() if line["level"] in ("WARN", "ERROR")]
    # Repaired requests are no fault of the set-up.
    yield "replicas: no warning", "; ".join(str(line) for line in warned if "exchange" not in str(line))


def check_death(balancer, replicas):
    """One replica after the other is killed: its sessions go on with the other one, and return later."""
    for replica, other in [replicas, reversed(replicas)]:
        # What is wrong with a stream that runs through the other one meanwhile.
        streams = []
        session = session_of(balancer, replicas, other)
        thread = threading.Thread(target=lambda: streams.append(Traffic.ask(balancer, True, session)))
        thread.start()
        time.sleep(0.5)
        replica.kill()
        yield f"replicas: requests go on without {replica.name}", balancer.ask_all()
        thread.join()
        yield f"replicas: a stream of {other.name} goes on", streams[0] if streams else "it has failed"
        replica.start()
        yield f"replicas: {replica.name} is used again", "" if is_used(balancer, replica) else "it is not"


def session_of(balancer, replicas, replica):
    """A session whose requests come to a replica."""
    for name in sessions():
        if served_by(replicas, lambda: len([balancer.ask(**{"x-antiphon-session": name})]))[replicas.index(replica)]:
            return name
    raise RuntimeError(f"no session is with {replica.name}")


def check_restarts(balancer, replicas):
    """A new version: one replica after the other ends and starts while requests and streams go on."""
    traffic, codes = Traffic(balancer.url), []
    try:
        for replica in replicas:
            codes.append(replica.restart())
            # As an operator does, who waits for one before the next.
            if not is_used(balancer, replica):
                codes.append(f"{replica.name} gets no requests")
    finally:
        traffic.end()
    faults = [] if codes == [0, 0] else [f"exit codes {codes}"]
    faults += [f"{len(traffic.failures)} failed: {traffic.failures[0]}"] if traffic.failures else []
    name = f"replicas: each is replaced: {traffic.requests} requests, {traffic.streams} of them streams"
    yield name, "; ".join(faults)


def main():
    """Runs the checks."""
    binary = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ANTIPHON_BIN", "target/debug/antiphon")
    binary, failed = Path(binary).resolve(), 0
    for checks in (check_replica_files(binary), check_replicas(binary)):
        for name, wrong in checks:
            print(f"{'FAILED' if wrong else 'passed'}: {name}{f': {wrong}' if wrong else ''}", flush=True)
            failed += bool(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
