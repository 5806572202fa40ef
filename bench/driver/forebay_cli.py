"""The forebay binary as a user runs it."""

import json
import os
import subprocess
import time
from pathlib import Path

from common import Failed, Process, run

BINARY = os.environ.get("FOREBAY", "")


def available() -> bool:
    return bool(BINARY) and Path(BINARY).exists()


def push(store: Path, table: str, source: Path, *more, prefix: tuple = (), seconds: float = 600) -> dict:
    """`forebay push` of a file with columns k and v; its report, and the wall time and peak memory."""
    command = [
        *prefix, BINARY, "--store", store, "--json", "push", table, source, "--key", "{k}", "--value", "v", *more,
    ]
    start = time.monotonic()
    words = [str(word) for word in command]
    # GNU time is not everywhere: the system tells the peak of an ended child.
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, errors = child.communicate(timeout=seconds)
    wall = time.monotonic() - start
    if child.returncode != 0:
        raise Failed(f"forebay push: {errors.strip()[-300:] or out.strip()[-300:]}")
    report = json.loads(out.strip().splitlines()[-1])
    return {**report, "seconds": wall, "reported_seconds": report.get("seconds")}


def swap(store: Path, table: str, version: int, prefix: tuple = ()) -> float:
    """Seconds that the command took, its own start included."""
    start = time.monotonic()
    run([*prefix, BINARY, "--store", store, "--json", "swap", table, version])
    return time.monotonic() - start


def versions(store: Path, table: str) -> list[dict]:
    return json.loads(run([BINARY, "--store", store, "--json", "versions", table]))


def serve(store: Path, port: int, http_port: int, log: Path, prefix: tuple = (), *more) -> Process:
    return Process(
        [*prefix, BINARY, "--store", store, "serve", "--listen", f"127.0.0.1:{port}",
         "--http", f"127.0.0.1:{http_port}", *more],
        log,
    )
