"""A PostgreSQL of these tests on loopback, with a password, as the compose file has one."""

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from running import free_port

PATIENCE = 60


def binaries():
    """The folder of the server's programs: POSTGRES_BIN, else that of the latest version; None where there is none."""
    if named := os.environ.get("POSTGRES_BIN"):
        return Path(named)
    found = [file.parent for file in Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    return max(found, key=lambda folder: int(folder.parent.name), default=None)


def server_user():
    """The user that the server runs as, since it refuses root; None if that of this process is right."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    return known.get("postgres") or known.get("nobody")


class Database:
    """A server with an empty database, as long as the block lasts."""

    def __init__(self, folder):
        self.folder, self.port, self.password = folder, free_port(), secrets.token_hex(24)
        self.url = f"postgres://antiphon:{self.password}@127.0.0.1:{self.port}/antiphon"

    def __enter__(self):
        self.home = Path(tempfile.mkdtemp())
        self.user = server_user()
        (self.home / "password").write_text(self.password)
        (self.home / "data").mkdir()
        if self.user:
            for path in (self.home, *self.home.iterdir()):
                os.chown(path, self.user.pw_uid, self.user.pw_gid)
        self.process = None
        try:
            access = ["--username", "antiphon", "--auth", "scram-sha-256", "--pwfile", str(self.home / "password")]
            rest = ["--no-sync", "--encoding", "UTF8", "--locale", "C", "--pgdata", str(self.home / "data")]
            self.run("initdb", *access, *rest)
            self.start()
            self.run("createdb", *self.address(), "antiphon")
        except BaseException:
            self.__exit__()
            raise
        return self

    def address(self):
        """The arguments that lead its own programs to it."""
        return ["-h", "127.0.0.1", "-p", str(self.port), "-U", "antiphon"]

    def command(self, name, *arguments):
        """A command of the server's user. It gets SIGINT, a fast shutdown, when this process dies."""
        command = ["setpriv", "--pdeathsig", "INT"]
        if self.user:
            command += ["--reuid", str(self.user.pw_uid), "--regid", str(self.user.pw_gid), "--clear-groups"]
        return [*command, str(self.folder / name), *arguments]

    def run(self, name, *arguments):
        """Runs one of its programs. Returns what it printed."""
        environment = os.environ | {"PGPASSWORD": self.password}
        ran = subprocess.run(
            self.command(name, *arguments), cwd=self.home, env=environment, capture_output=True, text=True, check=False
        )
        if ran.returncode != 0:
            raise RuntimeError(f"{name}: {ran.stderr}")
        return ran.stdout

    def start(self):
        """Starts it, and waits until it answers."""
        command = self.command("postgres", "-D", str(self.home / "data"), "-h", "127.0.0.1", "-p", str(self.port),
                               "-c", "unix_socket_directories=", "-c", "shared_buffers=32MB")
        with open(self.home / "log", "ab") as log:
            self.process = subprocess.Popen(command, cwd=self.home, stdout=log, stderr=log)
        end = time.monotonic() + PATIENCE
        while True:
            try:
                self.run("pg_isready", "-h", "127.0.0.1", "-p", str(self.port))
                return
            except RuntimeError:
                if time.monotonic() > end or self.process.poll() is not None:
                    raise RuntimeError((self.home / "log").read_text()[-2000:]) from None
                time.sleep(0.1)

    def stop(self):
        """Ends it at once, as a crash does."""
        if self.process:
            # The immediate shutdown: as after a crash, the rest of the server ends too.
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait()

    def count(self, table):
        """The number of rows of a table."""
        return int(self.run("psql", *self.address(), "-d", "antiphon", "-At", "-c", f"SELECT count(*) FROM {table}"))

    def __exit__(self, *_):
        self.stop()
        shutil.rmtree(self.home, ignore_errors=True)
