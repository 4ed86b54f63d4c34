#!/usr/bin/env python3
"""Memory and connections of a proxy over a file (the control) and over PostgreSQL: idle, and after requests with open calls.

    python3 tests/load/replica_memory.py [PATH OF THE BINARY]     default: $ANTIPHON_BIN, else target/release/antiphon
    REQUESTS=500 CLIENTS=8 python3 tests/load/replica_memory.py ...     the defaults are 3000 and 32

Each request is of a conversation of its own with an unanswered call, so that it asks the ledger and pins an answer.
Needs PostgreSQL: Debian's `postgresql`, or the folder of its programs in POSTGRES_BIN.
"""

import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import ThreadingHTTPServer
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS / "deploy"), str(TESTS / "sdk")]
from database import Database, binaries  # noqa: E402
from provider import Handler  # noqa: E402

REQUESTS = int(os.environ.get("REQUESTS", "3000"))
CLIENTS = int(os.environ.get("CLIENTS", "32"))


def memory(pid):
    """The resident memory of a process in MiB, without the pages of its file."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+)", status)[1]) / 1024


def send(address, number):
    """Sends one request with an open call."""
    call = {"type": "tool_use", "id": f"toolu_01AaBb9dE3fG7h{number:06}", "name": "run", "input": {}}
    log = [{"role": "user", "content": "go"}, {"role": "assistant", "content": [call]}, {"role": "user", "content": "?"}]
    connection = http.client.HTTPConnection(address)
    body = json.dumps({"model": "m", "max_tokens": 9, "messages": log})
    headers = {"x-api-key": "sk-load", "x-antiphon-session": f"s{number}", "content-type": "application/json"}
    connection.request("POST", "/anthropic/v1/messages", body, headers)
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 200, answer.status
    connection.close()


def measure(binary, provider, variables, count_connections):
    """Starts a proxy, sends the requests, and returns the memory before and after, and the connections."""
    command = [binary, "serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--log-format", "json",
               "--upstream", f"anthropic=http://127.0.0.1:{provider}"]
    process = subprocess.Popen(command, env={**os.environ, **variables}, stderr=subprocess.PIPE, text=True)
    try:
        for line in process.stderr:
            if '"serving"' in line:
                address = json.loads(line)["listen"]
                break
        else:
            raise SystemExit(f"the proxy did not start: {variables}")
        threading.Thread(target=process.stderr.read, daemon=True).start()
        send(address, 0)
        idle = memory(process.pid)
        with ThreadPoolExecutor(CLIENTS) as clients:
            list(clients.map(lambda number: send(address, number), range(1, REQUESTS + 1)))
        return idle, memory(process.pid), count_connections()
    finally:
        process.terminate()
        process.wait()


def main():
    """Prints one line for each store."""
    binary = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ANTIPHON_BIN", "target/release/antiphon")
    provider = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=provider.serve_forever, daemon=True).start()
    port = provider.server_address[1]
    print(f"{'ledger':<12}{'MiB idle':>10}{f'after {REQUESTS}':>14}{'connections':>13}")
    with tempfile.TemporaryDirectory() as folder:
        idle, after, _ = measure(binary, port, {"ANTIPHON_LEDGER_PATH": f"{folder}/ledger.db"}, lambda: 0)
        print(f"{'file':<12}{idle:>10.1f}{after:>14.1f}{'':>13}")
        if not (programs := binaries()):
            raise SystemExit("skipped: PostgreSQL is not installed")
        with Database(programs) as database:
            def connections():
                sql = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
                asked = subprocess.run([programs / "psql", database.url, "-Atc", sql], capture_output=True, text=True)
                return int(asked.stdout)

            variables = {"ANTIPHON_LEDGER_STORE": "postgres", "ANTIPHON_LEDGER_URL": database.url}
            idle, after, count = measure(binary, port, variables, connections)
            print(f"{'PostgreSQL':<12}{idle:>10.1f}{after:>14.1f}{count:>13}")


main()
