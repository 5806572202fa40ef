"""Nodes that pull versions from a real S3 server."""

import json
import os
import random
import subprocess
import urllib.error
import urllib.request

import pyarrow as pa
from data import write
from harness import Server

MIB = 1 << 20


class Node(Server):
    """`forebay serve --store s3://... --cache DIR`."""

    def __init__(self, store, cache, *args):
        self.cache = cache
        super().__init__(store, "--cache", str(cache), *args)

    def ask(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}{path}", timeout=30) as got:
                return got.status, got.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def pulls(self):
        return json.loads(self.ask("/v1/pulls")[1])["pulls"]

    def pull(self, table):
        found = [pull for pull in self.pulls()["tables"] if pull["table"] == table]
        return found[0] if found else None

    def value(self, key, field):
        """The value that a client reads, or None while the table does not serve."""
        try:
            return self.reader.hget(key, field)
        except Exception:
            return None

    @property
    def reader(self):
        if not self.clients:
            self.client(decode_responses=True)
        return self.clients[0]

    def runs(self, table):
        directory = self.cache / "tables" / table / "runs"
        return sorted(path for path in directory.glob("*") if path.suffix in (".run", ".ext"))


def wide(path, rows=6, seed=1):
    chance = random.Random(seed)
    values = [chance.randbytes(8 * MIB) for _ in range(rows)]
    table = pa.table({"id": range(rows), "wide": pa.array(values, pa.binary())})
    return write(table, path)


def ranges(proxy, since=0):
    """The ranges of runs that the proxy served."""
    with proxy.lock:
        asked = proxy.exchanges[since:]
    return [
        one for one in asked if one.method == "GET" and "/runs/" in one.path and one.status == 206
    ]


def metric(server, name):
    lines = server.ask("/metrics")[1].splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def drop_from_memory(path):
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def resident_bytes(path):
    """How many bytes of a file are in memory, as the system reports."""
    words = ["fincore", "--raw", "--noheadings", "--bytes", "--output", "RES", str(path)]
    return int(subprocess.run(words, check=True, capture_output=True).stdout)
