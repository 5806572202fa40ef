"""`PYTHON bench/driver/bench_asyncio.py`: look-ups within asyncio, where PYTHON has the package forebay.

A call beside the same call in a thread (`asyncio.to_thread`), of a table of this process and of one through a server.
Also how long an event loop stands still meanwhile.
"""

import asyncio
import random
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import common
import numpy as np
import pyarrow as pa
from common import Report, python_version, say

import forebay

ROWS = 1_000_000
# Keys of a call, and calls of a round.
CALLS = {1: 2000, 100: 400, 10_000: 10}


def make(path: str, rows: int) -> None:
    ids = np.arange(rows)
    data = pa.table({"id": ids, "name": [f"name {id}" for id in ids], "half": ids / 2})
    forebay.push(data, "names", key="{id}", store=path, progress=False)


def serve(path: str) -> tuple[subprocess.Popen, str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "forebay", "serve", "--store", path, "--listen", f"127.0.0.1:{port}"]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return server, f"redis://127.0.0.1:{port}"
        except OSError:
            time.sleep(0.05)
    raise SystemExit("bench: the server does not take connections")


async def timed(calls: Callable, batches: list[list[str]]) -> list[float]:
    """Microseconds of each."""
    took = []
    for keys in batches:
        began = time.perf_counter()
        await calls(keys)
        took.append((time.perf_counter() - began) * 1e6)
    return took


async def pauses(work) -> float:
    """The longest time in ms for which the loop did not come round while `work` went on, beyond the ms it sleeps."""
    task, longest = asyncio.ensure_future(work), 0.0
    before = time.perf_counter()
    while not task.done():
        await asyncio.sleep(0.001)
        now = time.perf_counter()
        longest, before = max(longest, (now - before) * 1e3 - 1), now
    await task
    return longest


async def round_of(table, rows: int, trial: bool) -> dict[int, dict[str, float]]:
    async def here(keys):
        return table.get_many(keys)

    async def in_thread(keys):
        return await asyncio.to_thread(table.get_many, keys)

    found: dict[int, dict[str, float]] = {}
    for many, calls in CALLS.items():
        batches = [[str(random.randrange(rows)) for _ in range(many)] for _ in range(max(calls // (10 if trial else 1), 3))]
        ways = {"here_us": here, "thread_us": in_thread}
        found[many] = {}
        for name, way in random.sample(list(ways.items()), 2):
            found[many][name] = statistics.median(await timed(way, batches))
    keys = [str(random.randrange(rows)) for _ in range(10_000)]
    for name, way in (("here_pause_ms", here), ("thread_pause_ms", in_thread)):
        found[10_000][name] = statistics.median([await pauses(way(keys)) for _ in range(5)])
    return found


def main() -> None:
    options = common.arguments(__doc__, rounds=5)
    rows = ROWS // (10 if options.trial else 1)
    report = Report("asyncio", "Look-ups within asyncio", options)
    report.body["command"] = "PYTHON bench/driver/bench_asyncio.py"
    report.body["versions"] = {"python": sys.version.split()[0], "redis": python_version("redis")}
    report.warn_of_load()
    path = str(common.fresh("asyncio") / "store")
    make(path, rows)
    server, url = serve(path)
    try:
        tables = {"in this process": forebay.open(path)["names"], "through a server": forebay.connect(url)["names"]}
        lines = []
        for where, table in tables.items():
            rounds = [asyncio.run(round_of(table, rows, options.trial)) for _ in range(options.rounds)]
            for many in CALLS:
                one = {name: statistics.median(run[many][name] for run in rounds) for name in rounds[0][many]}
                say(f"{where}, {many} keys: {one}")
                report.body[f"{where}, {many}"] = {**one, "runs": [run[many] for run in rounds]}
                pause = [f"{one[name]:.1f}" if name in one else "" for name in ("here_pause_ms", "thread_pause_ms")]
                lines.append([where, f"{many:,}", f"{one['here_us']:,.1f}", f"{one['thread_us']:,.1f}",
                              f"{one['thread_us'] - one['here_us']:,.0f}", *pause])
    finally:
        server.terminate()
        server.wait()
    report.text(f"A batch table of {rows:,} rows of three columns, in memory; a call of `get_many` takes so many random keys.")
    report.table(["table", "keys", "called, us", "in a thread, us", "more, us", "loop stands still, ms", "in a thread, ms"], lines)
    report.write()


if __name__ == "__main__":
    main()
