"""The table that `make bench-place` places, in a cluster of bounded nodes; plans for it by load."""

import contextlib
import time
from pathlib import Path

import cluster_places
from bounded import bounded_cluster
from common import Failed, say
from harness import wait_for

TABLE = "t"
NODES, PULL_RATE = 6, "auto:12M"
SLOTS = 1 << 14
#: How long to ask again for a plan that cannot be made yet. How long leaders take until they are those of a plan that
#: is done.
PLAN_S, SETTLE_S = 90, 5
LOOK_S = 2


class PlacedTable:
    """A hashed table of partitions of equally many slots."""

    name = TABLE

    def __init__(self, made, options):
        self.made, self.core, self.records, self.partitions = made, options.core, options.records, options.partitions
        self.is_batch, self.replicas = options.mode == "batch", options.replicas
        self.bounds = [number * SLOTS // self.partitions for number in range(self.partitions)]
        self.plan_file = Path(made.directory) / "plan.json"

    def fill(self) -> None:
        rows = cluster_places.source(self.records, 1)
        many = ["--partitions", self.partitions, "--replicas", self.replicas]
        if self.is_batch:
            self.made.store.push(self.name, rows, key="{k}", args=["--value", "v", *many])
            return
        self.made.store.run("create", self.name, "--mode", "live", "--durability", "os", *many)
        wait_for(self.is_whole, "all replicas are there", 120)
        self.made.store.json("load", self.name, rows, "--key", "{k}", "--value", "v")
        if [first for first, _ in self.map()] != self.bounds:
            raise Failed(f"the partitions of the table do not begin where they were taken to: {self.map()}")
        # Those that were elected first hand over to those that are to lead.
        time.sleep(SETTLE_S)

    def is_whole(self) -> bool:
        heard = self.made.ask_coordinator()
        live = heard and heard["live"]["tables"].get(self.name)
        return bool(live) and live["led"] == live["partitions"] and not live["joining"]

    def map(self) -> list:
        """First slots and nodes of the ranges."""
        with self.made.nodes[0].client() as client:
            return [(int(row[0]), row[2]) for row in client.execute_command("KV.MAP", self.name)]

    def plan(self, copies: int | None = None) -> dict:
        """What `forebay plan place` tells of a plan that it writes down for `carry_out`."""
        words = ["plan", "place", self.name, "--from-load", "1m", "--output", self.plan_file, "--json"]
        words += [] if copies is None else ["--copies", copies]
        begun = time.monotonic()
        while True:
            result = self.made.store.run(*words, code=None)
            if result.code == 0:
                return plan_of(result.json())
            if time.monotonic() - begun > PLAN_S:
                raise Failed(f"no plan is made: {result.err.strip()}")
            time.sleep(LOOK_S)

    def carry_out(self, plan: dict) -> dict:
        """The plan that was made last; with how long it took."""
        begun = time.monotonic()
        if plan["batches"]:
            self.made.store.run("cluster", "apply", self.plan_file, "--yes")
        plan["apply_s"] = time.monotonic() - begun
        say(f"  a plan: {plan['handed_over']} partitions handed over, {plan['copies']} copies, the hottest node {plan['hottest_before']:.2f} x the mean, "
            f"then {plan['hottest_after']:.2f} x (bound {plan['bound']:.2f} x); carried out in {plan['apply_s']:.1f} s")
        return plan


def plan_of(reported: dict) -> dict:
    """The figures of a plan, loads in multiples of a node's mean."""
    mean = reported["mean"] or 1
    figures = {name: reported[name] / mean for name in ("hottest_before", "hottest_after", "bound")}
    return {**figures, **{name: reported.get(name) for name in ("handed_over", "copies", "drops", "copied_bytes", "batches", "expected_s")}}


@contextlib.contextmanager
def placed_table(options, more: tuple = ()):
    """A table in a new cluster, whose nodes have `more` options. They are bounded once it is filled."""
    found = []

    def fill(made):
        found.append(PlacedTable(made, options))
        found[0].fill()

    with bounded_cluster(NODES, options.core, PULL_RATE, fill, more):
        yield found[0]
