"""Programs that talk in lines."""

import os
import queue
import subprocess
import tempfile
from contextlib import contextmanager
from threading import Thread

SECONDS = 60


class Failed(Exception):
    """What a check found wrong."""


class Program:
    """A running program: lines in, lines out."""

    def __init__(self, command, env, cwd=None):
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            command,
            env=os.environ | env,
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )
        self.lines = queue.Queue()
        Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def say(self, line):
        """Gives it a line."""
        try:
            print(line, file=self.process.stdin, flush=True)
        except OSError as error:
            raise Failed("it has ended, and reads no line") from error

    def line(self):
        """Returns its next line."""
        try:
            line = self.lines.get(timeout=SECONDS)
        except queue.Empty:
            raise Failed(f"no line after {SECONDS} s") from None
        if line is None:
            self.lines.put(None)
            raise Failed("it has ended without a line")
        return line

    def rest(self):
        """Ends it, and returns the lines that nobody has read, and its errors."""
        self.process.kill()
        self.process.wait()
        lines = list(iter(lambda: self.lines.get(timeout=SECONDS), None))
        self.errors.seek(0)
        return "\n".join(lines) + self.errors.read()


@contextmanager
def program(command, env, cwd=None):
    """Runs a program. Its unread lines are added to what went wrong."""
    running = Program(command, env, cwd)
    try:
        yield running
    except Failed as failure:
        raise Failed(f"{failure}\n{running.rest()}".strip()) from failure
    finally:
        running.process.kill()
        running.process.wait()
        running.process.stdin.close()
        running.errors.close()
