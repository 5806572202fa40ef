"""The reads of the Python clients, and their results. The clients in other languages do the same.

    CLIENT VARIANT ADDRESSES GROUPS VERSIONS

reads from a cluster until standard input ends. VARIANT is primary or replicas. ADDRESSES are those
of all nodes, separated by commas. Two tables, people and prices, have keys {g}:0 to {g}:3 for each
g below GROUPS. The value of a key is the key with its table, and its version, which is at most
VERSIONS. The first line of output is `reading`, after the first answered read. The last line is a
JSON object with the results.
"""

import json
import sys
import threading
import time

TABLES = ("people", "prices")
PAUSE_S = 0.01
# A stride without a common factor with the number of groups reaches all groups.
STRIDE = 7919
# Failures of one kind belong to one spell if at most this time lies between them.
SPELL_S = 2


class Reading:
    """The reads of one client. With `splits`, it sends an MGET over slots as several commands."""

    def __init__(self, client, version, splits):
        self.variant, addresses = sys.argv[1:3]
        self.groups, self.versions = map(int, sys.argv[3:5])
        self.addresses = [
            (host, int(port)) for host, port in (one.rsplit(":", 1) for one in addresses.split(","))
        ]
        self.client, self.version, self.splits = client, version, splits
        self.reads, self.wrong, self.parts = 0, 0, 0
        self.spells, self.last, self.longest = [], {}, 0.0
        self.count, self.answered_at = 0, None
        self.over = threading.Event()
        threading.Thread(target=self._wait_for_end, daemon=True).start()

    def _wait_for_end(self):
        sys.stdin.read()
        self.over.set()

    def next_keys(self):
        """In turn: a GET of each table, an MGET of one slot, and an MGET over slots."""
        self.count += 1
        group = self.count * STRIDE % self.groups
        kind = self.count % 4
        if kind < 2:
            return [f"{TABLES[kind]}:{{{group}}}:{self.count % 4}"]
        if kind == 2:
            return [f"people:{{{group}}}:{i}" for i in range(4)]
        return [f"{TABLES[i % 2]}:{{{(group + i) % self.groups}}}:{i % 4}" for i in range(8)]

    def answered(self, keys, values):
        now = time.monotonic()
        if self.answered_at is None:
            print("reading", flush=True)
        else:
            self.longest = max(self.longest, now - self.answered_at)
        self.answered_at = now
        self.reads += 1
        if len(values) != len(keys):
            return self._is_wrong(f"{len(values)} values for {len(keys)} keys")
        seen = {}
        for key, value in zip(keys, values, strict=True):
            text = value.decode() if isinstance(value, bytes) else value
            found, _, version = (text or "").rpartition(" ")
            if found != key or not version.isdigit() or not 1 <= int(version) <= self.versions:
                return self._is_wrong(f"{key}: {text!r}")
            seen.setdefault(key.split(":")[0], set()).add(int(version))
        if any(len(versions) > 1 for versions in seen.values()):
            if not (self.splits and len({key.split(":")[1] for key in keys}) > 1):
                return self._is_wrong(f"{keys}: {values}")
            # The client splits the MGET, so its parts are separate commands.
            self.parts += 1
        else:
            self.last.update({table: versions.pop() for table, versions in seen.items()})

    def _is_wrong(self, text):
        self.wrong += 1
        self.failed("wrong answer", text)

    def failed(self, kind, text):
        now = time.time()
        for spell in reversed(self.spells):
            if spell["kind"] == kind and now - spell["until"] < SPELL_S:
                spell["count"] += 1
                spell["until"] = now
                return
        spell = {"kind": kind, "count": 1, "since": now, "until": now, "text": text[:300]}
        self.spells.append(spell)

    def end(self):
        results = {
            "client": self.client,
            "version": self.version,
            "variant": self.variant,
            "reads": self.reads,
            "wrong": self.wrong,
            "parts": self.parts,
            "spells": self.spells,
            "longest_pause_ms": round(self.longest * 1000),
            "last": self.last,
        }
        print(json.dumps(results), flush=True)


def read(reading, get, mget):
    """The loop of a blocking client."""
    while not reading.over.wait(PAUSE_S):
        keys = reading.next_keys()
        try:
            values = [get(keys[0])] if len(keys) == 1 else mget(keys)
        except Exception as error:
            reading.failed(type(error).__name__, str(error))
        else:
            reading.answered(keys, values)
    reading.end()
