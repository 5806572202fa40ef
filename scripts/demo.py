"""A newcomer's first five minutes: the flights that left New York in 2013, published, replaced
under readers, compared and taken back.

Everything lives in .demo/ and goes with the next run; the server takes free ports and is ended.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
import time

import pyarrow.parquet as pq
import redis
from demo_flights import (
    FOREBAY,
    HOME,
    KEY,
    WATCHED,
    delays,
    first_version,
    forebay,
    say,
    second_version,
    shown,
    step,
)


class Readers:
    """Clients that read the watched flights without a pause, and check every reply."""

    def __init__(self, port, versions, count=2):
        """`versions` gives the number of a version by the delays that it has."""
        self.port, self.versions, self.over = port, versions, threading.Event()
        self.reads = self.failed = self.mixed = 0
        self.slowest = 0.0
        self.last = None
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.read, daemon=True) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def read(self):
        client = redis.Redis(port=self.port)
        names = [f"flights:{key}" for key in WATCHED]
        while not self.over.is_set():
            begun = time.monotonic()
            try:
                reply = client.mget(names)
            except redis.RedisError:
                reply = None
            self.note(reply, time.monotonic() - begun)
        client.close()

    def note(self, reply, took):
        version = None
        if reply and all(reply):
            seen = tuple(json.loads(row)["arr_delay"] for row in reply)
            version = self.versions.get(seen)
        with self.lock:
            self.reads += 1
            self.slowest = max(self.slowest, took)
            self.failed += not reply or not all(reply)
            self.mixed += bool(reply) and version is None
            self.last = version

    def wait_for(self, version):
        """Waits until the replies are of a version; gives the seconds it took."""
        begun = time.monotonic()
        while time.monotonic() - begun < 5:
            if self.last == version:
                return time.monotonic() - begun
            time.sleep(0.001)
        sys.exit(f"the readers never saw version {version}")

    def stop(self):
        self.over.set()
        for thread in self.threads:
            thread.join()


def redis_cli(port, *words):
    shown("redis-cli", "-p", port, *words)
    command = ["redis-cli", "-p", str(port), *words]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout.rstrip("\n")
    lines = out.splitlines()
    for line in lines[:6]:
        say(f"    {line[:150]}{'...' if len(line) > 150 else ''}")
    if len(lines) > 6:
        say(f"    ... ({len(lines)} lines)")
    return out


def serve():
    words = [FOREBAY, "serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--json"]
    server = subprocess.Popen(words, cwd=HOME, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    line = server.stdout.readline()
    if not line:
        sys.exit("forebay serve did not come up")
    ready = json.loads(line)
    return server, int(ready["listen"].rsplit(":", 1)[1]), ready["http"]


def run():
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir()

    step("1. The data: all flights that left New York in 2013, as Parquet")
    table = first_version()
    second = second_version(table)
    pq.write_table(table, HOME / "flights-1.parquet")
    pq.write_table(second, HOME / "flights-2.parquet")
    size = (HOME / "flights-1.parquet").stat().st_size / 1e6
    say(f"  flights-1.parquet: {table.num_rows:,} rows, {table.num_columns} columns, {size:.1f} MB")

    step("2. One command publishes it: read, sort, build, verify, swap")
    pushed, _ = forebay("push", "flights", "flights-1.parquet", "--key", KEY)

    step("3. Any Redis client reads it")
    server, port, http = serve()
    try:
        say(f"  forebay serve is up: Redis clients on port {port}, health and metrics on {http}")
        redis_cli(port, "GET", f"flights:{WATCHED[0]}")
        redis_cli(port, "HMGET", f"flights:{WATCHED[0]}", "dest", "arr_delay", "tailnum")
        redis_cli(port, "DBSIZE")

        step("4. A second version is published while two clients keep reading")
        readers = Readers(port, {delays(table): 1, delays(second): 2})
        readers.wait_for(1)
        replaced, _ = forebay("push", "flights", "flights-2.parquet", "--key", KEY)
        readers.wait_for(2)

        step("5. What changed")
        forebay("versions", "flights")
        compared, _ = forebay("diff", "flights", "1", "2", "--limit", "3")

        step("6. And back again, under the same readers")
        rolled, _ = forebay("rollback", "flights")
        seen_again = readers.wait_for(1)
        time.sleep(0.2)
        readers.stop()
        redis_cli(port, "HGET", f"flights:{WATCHED[0]}", "arr_delay")
    finally:
        server.terminate()
        server.wait(10)

    step("What happened")
    say(f"  {table.num_rows:,} rows went from Parquet to serving in {pushed:.1f} s.")
    say(f"  The second version replaced them in {replaced:.1f} s, while two clients read.")
    reads, slowest = readers.reads, readers.slowest * 1000
    say(f"  They sent {reads:,} reads of {len(WATCHED)} flights each: {readers.failed} failed,")
    say(f"  {readers.mixed} mixed versions in one reply, the slowest took {slowest:.1f} ms.")
    say(f"  The diff of the two versions took {compared:.1f} s.")
    rolled, seen_again = rolled * 1000, seen_again * 1000
    say(f"  The rollback took {rolled:.0f} ms; readers saw it {seen_again:.0f} ms later.")
    say("\n  The store is .demo/forebay-data; look around with, for instance:")
    binary = os.path.relpath(FOREBAY)
    say(f"  $ {binary} versions flights --store .demo/forebay-data")
    if readers.failed or readers.mixed:
        sys.exit(1)


if __name__ == "__main__":
    run()
