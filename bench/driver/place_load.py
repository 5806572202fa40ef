"""Clients of `make bench-place`: processes of place_client.py, what they and the nodes used meanwhile, what was answered when."""

import contextlib
import json
import os
import time
from pathlib import Path

from cluster_beside import Beside
from cluster_places import cpu_seconds

#: Processes of clients, and GETs that all of them together have outstanding where they ask as fast as they are answered.
PROCESSES, OUTSTANDING = 2, 384
#: What a client's process may use of a core, and what the busiest node has to use of its share. Then nodes are what
#: takes the time.
CLIENT_MOST, NODE_LEAST = 0.9, 0.95


class Clients:
    """Clients that ask from when the block begins until it ends; then `rate`, `took` and `asked` tell of spans of the monotonic clock."""

    def __init__(self, table, shares: list, rate: float = 0):
        self.nodes, self.core = table.made.nodes, table.core
        words = {
            "ports": [node.port for node in self.nodes], "table": table.name, "records": table.records, "bounds": table.bounds, "shares": shares,
            "rate": rate / PROCESSES, "outstanding": OUTSTANDING // PROCESSES, "spread": table.is_batch,
        }
        self.clients = [Beside("place_client.py", b"going\n", json.dumps({**words, "seed": seed})) for seed in range(PROCESSES)]
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        for client in self.clients:
            self.stack.enter_context(client)
        return self

    def __exit__(self, *why):
        self.stack.__exit__(*why)
        if why[0] is None:
            self.found = [client.found for client in self.clients]
            self.by_slot = self._by_slot()

    def shift(self, shares: list) -> float:
        """They ask by other shares from now on; when that is."""
        now = time.monotonic()
        for client in self.clients:
            client.child.stdin.write(json.dumps(shares).encode() + b"\n")
            client.child.stdin.flush()
        return now

    def window(self, seconds: float) -> dict:
        """Waits so long, and tells when that was and what was used meanwhile."""
        return self.during(lambda: time.sleep(seconds))[1]

    def during(self, work) -> tuple:
        """What the work gives; when it was done, and what was used meanwhile."""
        before = self._used()
        found = work()
        after = self._used()
        took = after["at"] - before["at"]
        share = lambda name: [round((now - then) / took, 3) for now, then in zip(after[name], before[name])]  # noqa: E731
        nodes = [round(used / self.core, 3) for used in share("nodes")]
        return found, {"span": [before["at"], after["at"]], "nodes": nodes, "clients": share("clients"), "idle": share("idle")[0]}

    def _used(self) -> dict:
        """Processor time in seconds."""
        fields = Path("/proc/stat").read_text().split()
        return {
            "at": time.monotonic(), "nodes": [cpu_seconds(node.process.pid) for node in self.nodes],
            "clients": [cpu_seconds(client.child.pid) for client in self.clients],
            "idle": [(int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")],
        }

    def _by_slot(self) -> dict:
        """{tenth of a second: GETs}, by all clients."""
        all_of = {}
        for found in self.found:
            for slots in found["answered"].values():
                for slot, count in slots.items():
                    all_of[int(slot)] = all_of.get(int(slot), 0) + count
        return all_of

    def rate(self, span: list) -> float:
        """GETs a second."""
        first, last = slots_of(span)
        return sum(count for slot, count in self.by_slot.items() if first <= slot < last) / ((last - first) / 10)

    def asked(self, span: list) -> float:
        """What the most asked node answered, in multiples of the mean."""
        first, last = slots_of(span)
        by_port = {node.port: 0 for node in self.nodes}
        for found in self.found:
            for port, slots in found["answered"].items():
                by_port[int(port)] += sum(count for slot, count in slots.items() if first <= int(slot) < last)
        return max(by_port.values()) * len(by_port) / max(sum(by_port.values()), 1)

    def took(self, span: list) -> list:
        """Seconds of each GET, the shortest first."""
        return sorted(took for found in self.found for at, took in found["took"] if span[0] <= at < span[1])

    def problems(self) -> dict:
        failed = {}
        for found in self.found:
            for text, count in found["failed"].items():
                failed[text] = failed.get(text, 0) + count
        return {"failed": failed, "moved": sum(found["moved"] for found in self.found)}


def slots_of(span: list) -> tuple:
    """Whole tenths of a second within a span."""
    return int(span[0] * 10) + 1, int(span[1] * 10)


def figures(window: dict) -> dict:
    """What of a window is kept."""
    return {name: window[name] for name in ("nodes", "clients", "idle")}


def reported(used: dict) -> str:
    """What was used in a window, for people."""
    nodes, clients = used["nodes"], used["clients"]
    return (f"nodes used {min(nodes):.0%} to {max(nodes):.0%} of their shares, the clients' processes {listed(clients)} of a core, "
            f"{used['idle']:.2f} cores were idle")


def listed(numbers: list) -> str:
    return " and ".join(f"{number:.2f}" for number in numbers)


def is_bound_by_nodes(used: dict) -> bool:
    """Whether the nodes, not the clients, were what took the time."""
    return max(used["nodes"]) >= NODE_LEAST and max(used["clients"]) <= CLIENT_MOST
