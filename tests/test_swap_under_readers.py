"""Reads continue through pushes, swaps and rollbacks: no error, and no reply mixes two versions."""

import json
import threading

import pyarrow as pa
from data import write
from harness import WAIT_S, wait_for

KEYS = 200


def versioned(tmp_path, version):
    """Rows whose columns all hold their version."""
    table = pa.table(
        {
            "id": list(range(KEYS)),
            **{f"v{i}": [version] * KEYS for i in range(6)},
            "padding": [f"{version}" * 50] * KEYS,
        }
    )
    return write(table, tmp_path / f"version-{version}.parquet")


class Reader(threading.Thread):
    """Reads in a loop, and records every version, mixture and error."""

    def __init__(self, client, read):
        super().__init__(daemon=True)
        self.client, self.read_once = client, read
        self.replies, self.seen, self.wrong = 0, [], []
        self.over = threading.Event()

    def run(self):
        while not self.over.is_set():
            try:
                versions = self.read_once(self.client)
            except Exception as error:
                self.wrong.append(repr(error))
                return
            if len(versions) != 1:
                self.wrong.append(f"a reply of versions {versions}")
            elif versions != set(self.seen[-1:]):
                self.seen += versions
            self.replies += 1


def read_hash(client):
    fields = client.hgetall("t:17")
    return {fields[f"v{i}"] for i in range(6)}


def read_many(client):
    rows = client.mget(*[f"t:{i}" for i in range(KEYS)])
    return {str(json.loads(row)["v0"]) for row in rows}


def read_fields(client):
    return set(client.hmget("t:3", *[f"v{i}" for i in range(6)]))


def test_pushes_swaps_and_rollbacks_under_readers(store, tmp_path):
    store.push("t", versioned(tmp_path, 1))
    with store.serve() as server:
        readers = [
            Reader(server.client(decode_responses=True), read)
            for read in [read_hash, read_many, read_fields]
        ]
        for reader in readers:
            reader.start()

        def all_see(version):
            wait_for(lambda: all(r.wrong or r.seen[-1:] == [version] for r in readers), version)

        all_see("1")
        for version in range(2, 6):
            store.push("t", versioned(tmp_path, version))
            all_see(str(version))
        for version in range(4, 2, -1):
            store.run("rollback", "t", "--from", version + 1)
            all_see(str(version))
        store.run("swap", "t", "5")
        all_see("5")
        for reader in readers:
            reader.over.set()
            reader.join(WAIT_S)
        assert [reader.wrong for reader in readers] == [[], [], []]
        for reader in readers:
            assert reader.seen == ["1", "2", "3", "4", "5", "4", "3", "5"]
            assert reader.replies > 20
