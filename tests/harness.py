"""Runs the built forebay binary as users do: commands, a server and clients."""

import json
import os
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest
import redis

BINARY = os.environ.get("FOREBAY", str(Path(__file__).parent.parent / "target/debug/forebay"))

# A command that takes longer hangs. The large tests allow more.
LIMIT_S = int(os.environ.get("FOREBAY_TEST_LIMIT_S", 120))
# Limit of every wait. It is far longer than needed, for busy machines.
WAIT_S = 90
# Pause between two checks of a condition.
MOST_STEP_S = 0.1


class Failed(Exception):
    """A command ended with an unexpected exit code."""


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def json(self):
        return json.loads(self.out)

    def json_lines(self):
        return [json.loads(line) for line in self.out.splitlines()]


class Store:
    """A store directory and the commands on it."""

    def __init__(self, path):
        self.path = Path(path)

    def environment(self):
        return {**os.environ, "FOREBAY_STORE": str(self.path), "RUST_BACKTRACE": "0"}

    def start(self, *args, **options):
        """Starts a command without waiting for its end."""
        words = [BINARY, *self.words(*map(str, args))]
        pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
        options = {"stdin": subprocess.DEVNULL, **pipes, **options}
        return subprocess.Popen(words, env=self.environment(), **options)

    def words(self, *args):
        """The words of a command, which may create its store."""
        makes = args[:1] in (("push",), ("create",)) and not {"--create", "--no-create"} & {*args}
        return [*args[:1], *(["--create"] if makes else []), *args[1:]]

    def finish(self, process):
        try:
            out, err = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        # A redirected stream is None.
        texts = ((text or b"").decode(errors="replace") for text in (out, err))
        return Result(process.returncode, *texts)

    def run(self, *args, code=0, **options):
        """Runs a command to its end. Another exit code than `code` fails the test."""
        result = self.finish(self.start(*args, **options))
        if code is not None and result.code != code:
            words = " ".join(map(str, args))
            raise Failed(
                f"forebay {words}: exit code {result.code}, not {code}\n{result.err}{result.out}"
            )
        return result

    def json(self, *args, code=0):
        return self.run(*args, "--json", code=code).json()

    def push(self, table, *sources, key="{id}", code=0, args=()):
        """Pushes, and returns the last object of --json, or None if the push failed."""
        result = self.run("push", table, *sources, "--key", key, *args, "--json", code=code)
        return json.loads(result.out.splitlines()[-1]) if result.out.strip() else None

    def refuse(self, *args, code=1, **options):
        """Runs a command that must fail, and returns its message."""
        result = self.run(*args, code=code, **options)
        assert result.err.strip(), "a failure without a message"
        assert "panicked" not in result.err, result.err
        return result.err

    def content(self, name):
        """The bytes of a file of the store, or None if there is no such file."""
        path = self.path / name
        return path.read_bytes() if path.exists() else None

    def runs(self, table):
        """The run files of a table, by name."""
        directory = self.path / "tables" / table / "runs"
        return sorted(directory.iterdir()) if directory.exists() else []

    def serve(self, *args):
        return Server(self, *args)


class Server:
    """A running `forebay serve` on free ports."""

    def __init__(self, store, *args):
        words = ["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--json", *args]
        self.log = store.path.with_name(f"{store.path.name}-serve.log")
        with self.log.open("wb") as log:
            self.process = store.start(*words, stderr=log)
        ready = self._first_line()
        self.port = int(ready["listen"].rsplit(":", 1)[1])
        self.http = int(ready["http"].rsplit(":", 1)[1])
        self.clients = []

    def _first_line(self):
        readable, _, _ = select.select([self.process.stdout], [], [], WAIT_S)
        line = self.process.stdout.readline() if readable else b""
        if not line:
            self.process.kill()
            self.process.communicate()
            raise Failed(f"forebay serve did not start: {self.log.read_text()}")
        return json.loads(line)

    def client(self, **options):
        client = redis.Redis(port=self.port, socket_timeout=30, retry=None, **options)
        self.clients.append(client)
        return client

    def alive(self):
        return self.process.poll() is None

    def stop(self, sign=signal.SIGTERM):
        """Stops the server and returns its exit code."""
        for client in self.clients:
            client.close()
        if self.alive():
            self.process.send_signal(sign)
        try:
            self.process.communicate(timeout=WAIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        code = self.stop()
        if kind is None:
            assert code == 0, f"forebay serve ended with exit code {code}"


def wait_for(condition, what, seconds=WAIT_S, step=None):
    """Waits until condition() is true, and returns the seconds it took. `what` names the condition,
    or is a function that describes the actual state. Without `step`, checks become less frequent
    with time."""
    begun, pause = time.monotonic(), step or 0.005
    while not condition():
        if time.monotonic() - begun > seconds:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(pause)
        pause = step or min(pause * 1.5, MOST_STEP_S)
    return time.monotonic() - begun


def refused(call, *words):
    """The server's error for a call. It must contain these words."""
    with pytest.raises(redis.ResponseError) as error:
        call()
    text = str(error.value)
    for word in words:
        assert word in text, text
    return text


def is_served(client, table):
    try:
        return client.get(f"{table}:absent") is None
    except redis.ResponseError:
        return False
