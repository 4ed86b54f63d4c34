#!/usr/bin/env python3
"""Time from the start of the process to listening, with an empty ledger and with a large one, in alternating rounds.

    python3 tests/load/ledger_start.py [PATH OF THE BINARY]     default: $ANTIPHON_BIN, else target/release/antiphon
    RECORDS=100000 ROUNDS=5 python3 tests/load/ledger_start.py ...      the defaults are 1000000 and 11

Prints for each ledger the median and the range of the time to the log line "serving", and of the time until the metrics
show the number of records, which is the end of the first check.
"""

import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

RECORDS = int(os.environ.get("RECORDS", "1000000"))
ROUNDS = int(os.environ.get("ROUNDS", "11"))
FILL = """
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
    INSERT INTO records (kind, principal, name, version, made_at, expires_at, checksum, value)
    SELECT 3, CAST(printf('%032d', i % 1000) AS BLOB), randomblob(32), 1, 0, 9000000000000000000, zeroblob(32), zeroblob(200) FROM n
"""


def start(binary, ledger):
    """Starts the proxy and stops it. Returns the milliseconds until it listens, and until its records are counted."""
    began = time.monotonic()
    process = subprocess.Popen(
        [binary, "serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--log-format", "json"],
        env={**os.environ, "ANTIPHON_LEDGER_PATH": str(ledger)}, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if '"serving"' in line:
            break
    else:
        sys.exit("it ended before it served")
    listening = time.monotonic() - began
    metrics = f"http://{json.loads(line)['admin_listen']}/metrics"
    while b"\nantiphon_ledger_records " not in urllib.request.urlopen(metrics).read():
        time.sleep(0.01)
    counted = time.monotonic() - began
    process.terminate()
    process.communicate()
    return listening * 1000, counted * 1000


def main():
    binary = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ANTIPHON_BIN", "target/release/antiphon"))
    with tempfile.TemporaryDirectory() as folder:
        ledgers = {0: Path(folder) / "empty.db", RECORDS: Path(folder) / "large.db"}
        for ledger in ledgers.values():
            start(binary, ledger)
        with sqlite3.connect(ledgers[RECORDS]) as connection:
            connection.execute(FILL, (RECORDS,))
        connection.close()
        times = {records: [] for records in ledgers}
        for _ in range(ROUNDS):
            for records, ledger in ledgers.items():
                times[records].append(start(binary, ledger))
        for records, rounds in times.items():
            for name, figures in zip(("listening", "counted"), zip(*rounds)):
                low, high = min(figures), max(figures)
                print(f"{records:>8} records: {name:9} after {statistics.median(figures):6.0f} ms ({low:.0f} to {high:.0f})")


if __name__ == "__main__":
    main()
