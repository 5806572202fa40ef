"""What SETs of a live table take while one of its three replicas catches up: by the log's tail, and by a copy; beside the
time before, and beside a restart of the replica that missed nothing. Once with all on the same cores; and once with the replica
on a core of its own, as it has a machine of its own elsewhere: then what the others pay is what sending costs them."""

import contextlib
import random
import socket
import statistics
import threading
import time

import cluster_places
from cluster_live import create, kept, leader_of
from cluster_places import middle, on_core, pin
from common import Done, Failed, Report, shown
from resp import word

TABLE = "key"
CONNECTIONS = 4
PAUSE_S = 0.008
VALUE = b"x" * 100
# What the replica misses.
WIDE = b"y" * (16 << 10)
MISSED = 10_000
BEFORE_S = 6
LIMIT_S = 300
# It is behind by what is on its way.
CLOSE_ENTRIES = 100
ARGS = {"restart": ("--log-retention", "512M"), "tail": ("--log-retention", "512M"), "copy": ("--log-retention", "1", "--memory", "64M")}
PLACES = ("apart", "together")
LABELS = {"restart": "it restarts, and missed nothing", "tail": "it is sent the log's tail", "copy": "it is brought a copy"}


class Paced(threading.Thread):
    """SETs one by one over one connection with a pause in between; notes when each began and what it took."""

    def __init__(self, port: int, seed: int):
        super().__init__(daemon=True)
        self.chance, self.over, self.problem, self.took = random.Random(seed), False, None, []
        self.stream = socket.create_connection(("127.0.0.1", port), 30)
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(self):
        while not self.over and not self.problem:
            key = b"%s:%012d" % (TABLE.encode(), self.chance.randrange(100_000))
            begun = time.monotonic()
            self.stream.sendall(word(b"SET", key, VALUE))
            got = self.stream.recv(1 << 10)
            self.took.append((begun, time.monotonic() - begun))
            if got != b"+OK\r\n":
                self.problem = got
            time.sleep(PAUSE_S * (0.5 + self.chance.random()))


@contextlib.contextmanager
def pacing(port: int):
    """Gives what tells the p99 in ms, and the count, of SETs that began between two moments."""
    writers = [Paced(port, seed) for seed in range(CONNECTIONS)]
    for writer in writers:
        writer.start()

    def reported(begin: float, end: float) -> dict:
        took = [one for writer in writers for at, one in list(writer.took) if begin <= at < end]
        problem = next((writer.problem for writer in writers if writer.problem), None)
        if problem or len(took) < 100:
            raise Failed(f"{len(took)} SETs, {problem}")
        return {"p99_ms": 1000 * statistics.quantiles(took, n=100)[98], "p50_ms": 1000 * statistics.median(took), "sets": len(took)}

    try:
        yield reported
    finally:
        for writer in writers:
            writer.over = True
        for writer in writers:
            writer.join(30)
            writer.stream.close()


def write_wide(node, count: int) -> None:
    with node.through_gateway() as client:
        for first in range(0, count, 50):
            pipe = client.pipeline(transaction=False)
            for number in range(first, min(first + 50, count)):
                pipe.set(f"{TABLE}:wide-{number}", WIDE)
            pipe.execute()


def is_close(leader) -> bool:
    """Whether all replicas answer the leader, and none is far behind."""
    of = f'{{table="{TABLE}"}}'
    silent, behind = (leader.metric(f"forebay_cluster_{name}{of}") for name in ("unreachable_replicas", "replica_lag_entries"))
    return silent == 0 and behind is not None and behind <= CLOSE_ENTRIES


def until(holds, what: str) -> float:
    begun = time.monotonic()
    while not holds():
        if time.monotonic() > begun + LIMIT_S:
            raise Failed(f"not within {LIMIT_S} s: {what}")
        time.sleep(0.1)
    return time.monotonic()


def catch_up(how: str, is_apart: bool, missed: int) -> dict:
    """SETs before, and while a replica that was killed catches up."""
    # With one core for the replica, and one for the others and the clients.
    its_core, core = (on_core(1), on_core(0)) if is_apart else (contextlib.nullcontext(), contextlib.nullcontext())
    with cluster_places.directory_cluster(3, args=ARGS[how]) as made:
        create(made.store, TABLE, 1, "--replicas", "3")
        leader = leader_of(made, TABLE)
        away = next(node for node in made.nodes if node is not leader)
        write_wide(leader, missed // 10)
        until(lambda: is_close(leader), "all follow")
        for node in made.nodes if is_apart else ():
            pin(node.process.pid, 1 if node is away else 0)
        with core, pacing(leader.gateway) as reported:
            time.sleep(2)
            begun = time.monotonic()
            time.sleep(BEFORE_S)
            before = reported(begun, time.monotonic())
            away.kill()
            if how != "restart":
                write_wide(leader, missed)
            if how == "copy":
                log = f'forebay_cluster_log_bytes{{table="{TABLE}",for="kept"}}'
                until(lambda: leader.metric(log) < 40 << 20, "its entries are gone")
            time.sleep(3)
            begun = time.monotonic()
            with its_core:
                away.start()
            away.wait_listening()
            # A leader takes a while to know that it is silent, and that it is not.
            time.sleep(1)
            ended = until(lambda: is_close(leader), "it has caught up")
            ended = max(ended, begun + BEFORE_S / 2)
            time.sleep(max(0, ended - time.monotonic()))
            during = reported(begun, ended)
        metric = lambda name: sum(node.metric(f"forebay_cluster_{name}_total") for node in made.nodes)  # noqa: E731
        return {
            "before": before, "during": during, "seconds": ended - begun, "ratio": during["p99_ms"] / before["p99_ms"],
            "copies": away.metric("forebay_cluster_copies_total"), "tail_bytes": metric("log_sent_bytes"),
        }


def rounds(options) -> dict:
    """{how: {place: [run]}}"""
    missed, count = (MISSED // 5, 1) if options.trial else (MISSED, options.rounds)
    run = lambda how, place: catch_up(how, place == "apart", missed)  # noqa: E731
    return {how: {place: [run(how, place) for _ in range(count)] for place in PLACES} for how in ARGS}


def measure(report: Report, options, done: Done, wanted: bool) -> None:
    found = kept("catchup", rounds, options, done, wanted, report)
    if not found:
        return
    report.body["catchup"] = found
    report.text("## SETs of a live table while one of its three replicas catches up")
    missed = len(WIDE) * (MISSED // 5 if options.trial else MISSED) / 1e6
    report.text(
        f"One partition, three nodes, durability `os`; {CONNECTIONS} connections send SETs of 100 B one by one to the node that leads, some "
        f"{CONNECTIONS / PAUSE_S:.0f} a second at most. A replica is killed, misses {missed:.0f} MB, and is started again. *Apart*: it runs on one core, "
        "the other two nodes and the clients on the other, so that it takes no processor time from them, as where each node has a machine. "
        "*Together*: all share the two cores, and its start alone costs the others something. Medians of the rounds.",
    )
    value = lambda how, place, part, field: middle(one[part][field] for one in found[how][place])  # noqa: E731
    report.table(
        ["", "", "p99 before, ms", "p99 meanwhile, ms", "meanwhile / before", "p50 before, ms", "p50 meanwhile, ms", "it took, s", "copies", "tail, MB"],
        [
            [LABELS[how], place, shown(value(how, place, "before", "p99_ms"), 2), shown(value(how, place, "during", "p99_ms"), 2),
             shown(middle(one["ratio"] for one in found[how][place]), 2), shown(value(how, place, "before", "p50_ms"), 2),
             shown(value(how, place, "during", "p50_ms"), 2),
             *(shown(middle(one[field] for one in found[how][place]), 1) for field in ("seconds", "copies")),
             shown(middle(one["tail_bytes"] / 1e6 for one in found[how][place]), 0)]
            for place in PLACES for how in found
        ],
    )
    report.targets([
        (f"p99 of SET while {LABELS[how]} / before, {place}", middle(one["ratio"] for one in found[how][place]), 1.5, " x")
        for place in PLACES for how in ("tail", "copy")
    ])
