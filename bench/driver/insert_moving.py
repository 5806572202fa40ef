"""A partition of 1 GB goes to another node, under writes into it at half the rate that its node takes."""

import json
import threading
import time

import insert_places
import redis.crc
from cluster_beside import Beside
from cluster_places import middle, quantile
from common import Done, Failed, Report, say, shown

NODES, CORE, PULL_RATE = 3, 0.25, "auto:48M"
BYTES, TRIAL_BYTES = 1_000_000_000, 100_000_000
CAPACITY_CONNECTIONS, CONNECTIONS = 8, 64
WRITE_BYTES = 100
QUIET_S, CAPACITY_S = 8, 4
#: Around the moment in which another node leads.
AROUND_S = 1.0
#: Of writes that are drawn, as many as can be told apart.
SLOT_S = 0.01
TABLE = "m"
#: All rows have keys of one slot, so that they are in one of the table's partitions; each node has one.
TAG = "{m}"
LIMIT_MS = 100


def holder(made) -> str:
    """Who leads the partition that has the rows."""
    slot = redis.crc.key_slot(TAG.encode())
    with made.nodes[0].client() as client:
        ranges = client.execute_command("KV.MAP", TABLE)
    nodes = next(nodes for first, last, nodes in ranges if int(first) <= slot and (last is None or slot < int(last)))
    return next(node.name for node in made.nodes if nodes[0].endswith(f":{node.port}"))


class Leads(threading.Thread):
    """Notes when another node leads."""

    def __init__(self, made):
        super().__init__(daemon=True)
        self.made, self.over, self.changes = made, threading.Event(), []
        self.last = holder(made)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join(30)

    def run(self):
        while not self.over.wait(0.1):
            now = holder(self.made)
            if now != self.last:
                self.changes.append([time.monotonic(), self.last, now])
                self.last = now


def words(made, keys, rate: float) -> str:
    """Half of the connections are at the node that leads, and follow MOVED; half at another one's gateway."""
    first = made[holder(made)]
    other = next(node for node in made.nodes if node is not first)
    ports = [first.port, other.gateway] * ((CONNECTIONS if rate else CAPACITY_CONNECTIONS) // 2)
    return json.dumps({"ports": ports, "tables": [TABLE], "keys": str(keys), "rate": rate, "writes": 1.0, "value_bytes": WRITE_BYTES})


def check(made, written: dict) -> int:
    """How many keys do not hold what they have to."""
    names, lost = list(written), 0
    with made.nodes[0].through_gateway() as client:
        for at in range(0, len(names), 500):
            some = names[at:at + 500]
            for name, got in zip(some, client.mget(some)):
                acknowledged, sent = written[name]
                number = int(got.split()[0]) if got and got.split()[0].isdigit() else 0
                lost += acknowledged > 0 and not acknowledged <= number <= sent
    return lost


def one(size: int, replicas: int, rounds: int) -> dict:
    rows = size // (insert_places.KEY_BYTES + insert_places.VALUE_BYTES)
    nodes = NODES if replicas == 1 else NODES + 1
    with insert_places.bounded_cluster(nodes, CORE, PULL_RATE) as made:
        made.store.run("create", TABLE, "--partitions", nodes, "--durability", "os", "--replicas", replicas)
        made.store.json("load", TABLE, insert_places.source("uniform", rows, 3, TAG), "--key", "{k}", "--value", "v")
        keys = insert_places.keys_file(rows, 3, TAG)
        time.sleep(3)
        with Beside("insert_client.py", b"going\n", words(made, keys, 0)) as client:
            time.sleep(CAPACITY_S)
        most = len(client.found["ops"]) / CAPACITY_S
        written, moves, spans = client.found["written"], [], []
        # The writes' numbers of each client begin anew: what the first one wrote is checked first.
        lost = check(made, written)
        with Leads(made) as leads, Beside("insert_client.py", b"going\n", words(made, keys, most / 2)) as client:
            time.sleep(2)
            quiet = [time.monotonic(), 0.0]
            time.sleep(QUIET_S)
            quiet[1] = time.monotonic()
            for _ in range(rounds):
                moves += drained(made, spans)
            time.sleep(2)
        lost += check(made, client.found["written"])
    return summed(size, replicas, most, client.found, leads.changes, quiet, spans, moves, lost)


def drained(made, spans: list) -> list:
    name = holder(made)
    begun = time.monotonic()
    plan = made.store.run("cluster", "drain", name, "--yes", "--json").json_lines()[-1]
    spans.append([begun, time.monotonic()])
    if plan["ended"] != "done":
        raise Failed(f"the move ended as {plan['ended']}: {plan['reason']}")
    # It may hold something again, which moves nothing by itself.
    made.store.run("cluster", "add", name, "--yes", "--json", code=None)
    return [{"from": name, "seconds": spans[-1][1] - begun}]


def summed(size, replicas, most, found, changes, quiet, spans, moves, lost) -> dict:
    ops = found["ops"]
    within = lambda span: [op for op in ops if span[0] <= op[0] < span[1]]  # noqa: E731
    moving = [op for span in spans for op in within(span)]
    around = [op for at, _, _ in changes for op in within([at - AROUND_S, at + AROUND_S])]
    start = quiet[0]
    longest = max(moving, key=lambda op: op[1])
    first = changes[0][0] if changes else longest[0]
    near = longest_each([[op[0] - first, op[1] * 1e3] for op in within([first - 5, first + 5])])
    return {
        "bytes": size, "replicas": replicas, "capacity": most, "rate": most / 2, "moves": moves, "hand_overs": len(changes),
        "before": measures(within(quiet)), "during": measures(moving), "around": measures(around), "longest_at": longest[0] - start,
        "moved": found["moved"], "failures": len(found["failed"]), "failed": [text for _, text in found["failed"]][:20],
        "acknowledged": sum(1 for op in ops if op[2]), "keys": len(found["written"]), "lost": lost, "near": near,
    }


def longest_each(points: list) -> list:
    """Of each SLOT_S the longest."""
    longest = {}
    for at, took in points:
        slot = int(at / SLOT_S)
        if slot not in longest or took > longest[slot][1]:
            longest[slot] = [round(at, 4), round(took, 3)]
    return [longest[slot] for slot in sorted(longest)]


def measures(ops: list) -> dict:
    took = sorted(op[1] for op in ops)
    at = lambda part: quantile(took, part) * 1e3 if took else None  # noqa: E731
    return {"writes": len(took), "p50": at(0.5), "p99": at(0.99), "p999": at(0.999), "max": at(1)}


def measure(report: Report, options, done: Done, wanted: bool) -> None:
    size = options.bytes or (TRIAL_BYTES if options.trial else BYTES)
    found = []
    for replicas in (1, 3):
        key = Done.key("moving", size, replicas, options.rounds)
        if wanted and key not in done.results:
            say(f"a partition of {size / 1e6:,.0f} MB with {replicas} replica(s) goes to another node, under writes into it")
            try:
                done.put(key, one(size, replicas, options.rounds if replicas == 1 else 1))
            except Exception as why:  # noqa: BLE001 - the other parts go on
                report.failed(f"moving, {replicas} replica(s)", why)
        if key in done.results:
            found.append(done.results[key])
    if found:
        report.body["moving"] = found
        tell(report, found)


def tell(report: Report, found: list) -> None:
    report.text(
        f"## A partition of {found[0]['bytes'] / 1e6:,.0f} MB goes to another node, under writes into it",
        "",
        f"A hashed table whose rows all lie in one of its partitions. Its leader's node is drained (`forebay cluster drain`), so that another one comes to hold all of it, while {CONNECTIONS} "
        f"connections write {WRITE_BYTES} B to its keys at half the rate that {CAPACITY_CONNECTIONS} of them reach as fast as they are answered (open loop). Half of them are at the node "
        "that leads, and follow MOVED, half at another node's gateway. Nodes have "
        f"{CORE:g} of a core and `--pull-rate {PULL_RATE}`. Afterwards each key has to hold the number that was acknowledged last, or one that was sent later. Milliseconds.",
    )
    report.table(
        ["replicas", "moves", "s, median", "writes a second", "p50 / p99 before", "p50 / p99 during", f"p99 within {AROUND_S:g} s of a hand-over", "longest",
         "MOVED", "other errors", "keys written", "lost"],
        [
            [one["replicas"], len(one["moves"]), shown(middle(move["seconds"] for move in one["moves"]), 1),
             shown(one["rate"]),
             *(f"{shown(one[when]['p50'], 2)} / {shown(one[when]['p99'], 2)}" for when in ("before", "during")), shown(one["around"]["p99"], 1),
             shown(one["during"]["max"], 1), one["moved"], one["failures"], f"{one['keys']:,}", one["lost"]]
            for one in found
        ],
    )
    for one in found:
        if one["failed"]:
            report.text(f"Errors with {one['replicas']} replica(s), the first: {'; '.join(dict.fromkeys(one['failed']))}.")


def targets(found: list) -> list:
    rows = []
    for one in found:
        what = f"a partition of {one['bytes'] / 1e6:,.0f} MB moved, {one['replicas']} replica(s): "
        rows += [(what + "writes held, p99", one["during"]["p99"], LIMIT_MS, " ms"), (what + "errors but MOVED", float(one["failures"]), 0, ""),
                 (what + "acknowledged writes lost", float(one["lost"]), 0, "")]
    return rows
