"""The forebay binary as a user runs it."""

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

from common import Failed, Process, memory_of, run

BINARY = os.environ.get("FOREBAY", "")


def available() -> bool:
    return bool(BINARY) and Path(BINARY).exists()


def push(store: Path, table: str, source: Path, *more, prefix: tuple = (), seconds: float = 600) -> dict:
    """`forebay push` of a file with columns k and v; its report, and the wall time and peak memory."""
    command = [
        *prefix, BINARY, "--store", store, "--json", "push", "--create", table, source, "--key", "{k}", "--value", "v", *more,
    ]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        start = time.monotonic()
        child = subprocess.Popen([str(word) for word in command], stdout=out, stderr=errors)
        anonymous, usage = watch(child, start + seconds)
        wall = time.monotonic() - start
        out.seek(0)
        errors.seek(0)
        answer, complaint = out.read().strip(), errors.read().strip()
    if child.returncode != 0:
        raise Failed(f"forebay push: {complaint[-300:] or answer[-300:]}")
    report = json.loads(answer.splitlines()[-1])
    return {
        **report, "seconds": wall, "reported_seconds": report.get("seconds"), "peak_anonymous_bytes": anonymous,
        "peak_rss_bytes": usage.ru_maxrss * 1024, "cpu_seconds": usage.ru_utime + usage.ru_stime,
    }


def watch(child: subprocess.Popen, deadline: float) -> tuple:
    """Waits for the child; the highest anonymous memory seen, and what the system counted for it."""
    highest = 0
    while True:
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        if pid:
            child.returncode = os.waitstatus_to_exitcode(status)
            return highest, usage
        try:
            highest = max(highest, memory_of(child.pid)["anonymous_bytes"])
        except OSError:
            pass
        if time.monotonic() > deadline:
            child.kill()
        time.sleep(0.02)


def swap(store: Path, table: str, version: int, prefix: tuple = ()) -> float:
    """Seconds that the command took, its own start included."""
    start = time.monotonic()
    run([*prefix, BINARY, "--store", store, "--json", "swap", table, version])
    return time.monotonic() - start


def versions(store: Path, table: str) -> list[dict]:
    return json.loads(run([BINARY, "--store", store, "--json", "versions", table]))


def serve(store: Path, port: int, http_port: int, log: Path, prefix: tuple = (), *more, binary: str | None = None) -> Process:
    return Process(
        [*prefix, binary or BINARY, "--store", store, "serve", "--listen", f"127.0.0.1:{port}",
         "--http", f"127.0.0.1:{http_port}", *more],
        log,
    )
