"""Kills nodes while a cluster carries out plans, beside writes and reads.

`make test-kills` calls it. Plans of every kind take turns: drain and add nodes, change a batch
table's replicas, load a live table with splits and moves first, and place it by its load. During
each plan, SIGKILL ends one node at a random moment, and the node starts again soon after. It is in
turn the coordinator, a node that gives up data, or a node that receives data. Afterwards the plan
must have ended, all partitions must have all replicas, counters must hold the acknowledged
increments, and all rows must exist. The script prints a table, and exits with 1 if something was
lost.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pyarrow
import pyarrow.parquet
from cluster import Cluster, Reading, is_whole
from harness import Failed, Store, wait_for
from measured import build, commit
from test_cluster_live_load import Counting, answered, staged

NODES, COUNTERS, ROWS_A_LOAD = 6, 48, 20_000
VICTIMS = ("coordinator", "gives", "takes")
KINDS = ("drain", "add", "more replicas", "fewer replicas", "load", "place")
# Seconds from a plan's start to the kill, and from the kill to the restart.
MOST_DELAY_S, LEAST_DOWN_S, MOST_DOWN_S = 4, 0.2, 4
# Nodes fetch this many bytes a second, so that copies take some seconds.
PULL_RATE = "1M"
BATCH_ROWS, BATCH_BYTES = 12, 1 << 19


def name(number):
    return f"k{number:07}"


class Plans:
    """Makes plans of a kind, and gives the commands that carry them out."""

    def __init__(self, made, chance):
        self.made, self.chance = made, chance
        self.file = made.directory / "plan.json"
        self.drained, self.loads = None, 0

    def wanted(self, *words):
        """The output of a command that makes a plan, or None if there is nothing to plan."""
        seen = []

        def is_planned():
            result = self.made.store.run(*words, "--output", self.file, "--json", code=None)
            # Nodes report sizes and traffic some seconds later.
            if "ask again" in result.err or "no node reported" in result.err:
                return False
            if "nothing" in result.err and "to do" in result.err:
                seen[:] = [None]
            elif result.code not in (0, 2):
                raise Failed(f"{words}: {result.code} {result.err}")
            else:
                seen[:] = [result.json()]
            return True

        wait_for(is_planned, f"a plan is made: {words}", 120, 0.5)
        return seen[0]

    def make(self, kind):
        """The plan's JSON and the command that carries it out, or None."""
        apply = ["cluster", "apply", self.file, "--yes", "--json"]
        if kind == "drain":
            self.drained = self.chance.choice(self.made.nodes).name
            return self.wanted("cluster", "plan", "drain", self.drained), apply
        if kind == "add":
            return self.wanted("cluster", "plan", "add", self.drained), apply
        if kind in ("more replicas", "fewer replicas"):
            count = 3 if kind == "more replicas" else 2
            return self.wanted("cluster", "plan", "replicas", "b", count), apply
        if kind == "place":
            words = ["plan", "place", "t", "--from-load", "1m"]
            return self.wanted(*words), apply
        source = self.made.new_rows(self.loads)
        self.loads += 1
        words = ["t", source, "--key", "{id}"]
        seen = self.wanted("plan", "insert", *words, "--partition-bytes", "1M")
        return seen, ["load", *words, "--plan", self.file, "--json"]


def gives_and_takes(seen):
    """The names of the nodes that give up data by a plan, and of those that receive data."""
    plan = seen.get("plan", seen)
    gives, takes = set(), set()
    for node in plan.get("nodes") or []:
        if node.get("copied_bytes"):
            takes.add(node["node"])
        elif node.get("after_bytes", 0) < node.get("before_bytes", 0):
            gives.add(node["node"])
    for one in plan.get("partitions") or []:
        if one.get("before") and one.get("before") != one.get("after"):
            gives.add(one["before"][0])
            takes.add(one["after"][0])
    return gives, takes


class KilledCluster(Cluster):
    """Six nodes with a live table `t`, counters in it, and a batch table `b`."""

    def begin(self, chance):
        self.chance, self.rows, self.counters = chance, {}, []
        self.start()
        bounds = [word for number in (15, 30, 45) for word in ("--boundary", name(number * 1000))]
        words = ["--mode", "live", "--durability", "os", "--order", "ordered", "--replicas", "3"]
        self.store.run("create", "t", *words, *bounds)
        self.wait_for(self.is_whole)
        self.counters = [name(60_000_00 + number) for number in range(COUNTERS)]
        self.store.json("load", "t", self.new_rows(-1), "--key", "{id}")
        wide = [bytes([row]) * 16 + os.urandom(BATCH_BYTES) for row in range(BATCH_ROWS)]
        table = {"id": range(BATCH_ROWS), "wide": pyarrow.array(wide), "version": [1] * BATCH_ROWS}
        path = self.directory / "wide.parquet"
        pyarrow.parquet.write_table(pyarrow.table(table), path)
        words = ["--key", "{id}", "--replicas", "2", "--partitions", BATCH_ROWS]
        self.store.run("push", "b", path, *words)
        return self

    def new_rows(self, turn):
        """A source of neighbouring rows, some of which replace others."""
        first = 0 if turn < 0 else self.chance.randrange(40_000)
        keys = [name(first + number) for number in range(ROWS_A_LOAD)]
        filler = random.Random(turn)
        self.pending = {key: f"{turn}-{filler.randbytes(30).hex()}" for key in keys}
        path = self.directory / f"rows-{turn}.parquet"
        table = pyarrow.table({"id": keys, "v": list(self.pending.values())})
        pyarrow.parquet.write_table(table, path)
        if turn < 0:
            self.loaded()
        return path

    def loaded(self):
        self.rows.update(self.pending)

    @staticmethod
    def is_whole(seen):
        return not seen["plan"] and is_whole(seen, ["t"])


class Kills:
    """Rows of (kind, victim, how the plan ended, seconds)."""

    def __init__(self, made, chance):
        self.made, self.chance, self.rows = made, chance, []
        self.plans = Plans(made, chance)
        self.wrong = []

    def once(self, kind, victim):
        made = self.made
        seen, words = self.plans.make(kind)
        if seen is None:
            return None
        begun = time.monotonic()
        process = made.store.start(*words)
        time.sleep(self.chance.uniform(0, MOST_DELAY_S))
        node = self.victim(victim, seen)
        node.kill()
        time.sleep(self.chance.uniform(LEAST_DOWN_S, MOST_DOWN_S))
        node.start().wait_listening()
        done = made.store.finish(process)
        ended = self.ended(kind, done)
        made.wait_up(90)
        made.wait_for(made.is_whole, seconds=120)
        self.rows.append((kind, victim, ended, time.monotonic() - begun))
        self.check()
        return ended

    def victim(self, victim, seen):
        gives, takes = gives_and_takes(seen)
        names = {"gives": sorted(gives), "takes": sorted(takes)}.get(victim)
        if names:
            return self.made[self.chance.choice(names)]
        return self.made.coordinator()

    def ended(self, kind, done):
        if kind != "load":
            known = {0: "done", 5: "undone"}
            if done.code not in known:
                raise Failed(f"{kind} ended with {done.code}: {done.err}")
            return known[done.code]
        if done.code == 0:
            self.made.loaded()
            return "done"
        if "nothing was loaded" not in done.err and "nothing was added" not in done.err:
            raise Failed(f"the load ended with {done.code}: {done.err}")
        return "undone"

    def check(self):
        """Checks all rows at a random node."""
        node = self.chance.choice(self.made.nodes)
        keys = list(self.made.rows)
        values = answered(node, keys)
        wrong = [
            (key, value)
            for key, value in zip(keys, values, strict=True)
            if value != self.made.rows[key]
        ]
        self.wrong += wrong
        if wrong:
            raise Failed(f"{len(wrong)} rows of {len(keys)} are wrong, as {wrong[:3]}")

    def run(self, count):
        turn = 0
        while len(self.rows) < count:
            kind = KINDS[turn % len(KINDS)]
            victim = VICTIMS[(turn // len(KINDS) + turn) % len(VICTIMS)]
            turn += 1
            if turn > 2 * count + len(KINDS):
                raise Failed("most plans have nothing to do")
            ended = self.once(kind, victim)
            if ended is None:
                print(f"{kind}: nothing to do", flush=True)
                continue
            took = self.rows[-1][-1]
            print(f"{len(self.rows)}, {kind}, killed: {victim}: {ended}, {took:.1f} s", flush=True)
            if kind in ("drain", "add") and ended == "undone":
                # The next plan requires that this one is done.
                self.made.store.run("cluster", kind, self.plans.drained, "--yes", "--json")


def batch_reader(node):
    def read(client):
        return {client.hget(f"b:{time.monotonic_ns() % BATCH_ROWS}", "version")}

    return Reading(node.through_gateway(), read, 0.02)


def leftovers(made):
    """Files that are left of loads in the store, and of tables at nodes without partitions."""
    found = [f"store: {file}" for file in staged(made)]
    status = made.ask_coordinator()
    idle = [node["name"] for node in status["nodes"] if not node["holds"]]
    for at in idle:
        files = [file for file in made[at].cache.rglob("*.run") if file.is_file()]
        found += [f"{at}: {file.name}" for file in files]
    return found


def report(kills, counting, reader, left, took_s, head):
    lines = [
        head,
        "| plan | killed | done | undone | median s |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for kind in KINDS:
        for victim in VICTIMS:
            rows = [row for row in kills.rows if row[:2] == (kind, victim)]
            if rows:
                ended = Counter(row[2] for row in rows)
                took = sorted(row[3] for row in rows)[len(rows) // 2]
                lines.append(
                    f"| {kind} | {victim} | {ended['done']} | {ended['undone']} | {took:.1f} |"
                )
    ended = Counter(row[2] for row in kills.rows)
    counted, uncertain = sum(counting.certain.values()), sum(counting.perhaps.values())
    lines += [
        "",
        f"{len(kills.rows)} kills in {took_s:.0f} s: {ended['done']} plans were done, "
        f"{ended['undone']} undone. {counted:,} counts were acknowledged, {uncertain:,} uncertain: "
        f"{len(kills.wrong_counts)} counters are wrong. {len(kills.made.rows):,} rows were read "
        f"after each kill: {len(kills.wrong)} were wrong. {reader.replies:,} reads of the batch "
        f"table, {len(reader.failed):,} failed, {len(reader.mixed)} were mixed. {len(left)} files "
        "are left over.",
    ]
    return "\n".join(lines) + "\n"


def heading(seed, load):
    return f"""# Nodes killed while plans are carried out

{time.strftime("%Y-%m-%d")}, `make test-kills` at {commit()}, a {build()} build, seed {seed}.
Machine: {os.cpu_count()} cores, shared with other work (load {load:.1f} before the run).

{NODES} nodes on loopback, `--pull-rate {PULL_RATE}`; a live table with 3 replicas and
`--durability os`, of which {COUNTERS} keys are counted up all the time through all gateways, and a
batch table with 2 replicas that is read all the time. Plans of each kind come in turn, and while
one is carried out a node is killed (SIGKILL): the coordinator, one that gives something up, or one
that takes something; at a random moment within {MOST_DELAY_S} s, for {LEAST_DOWN_S} to
{MOST_DOWN_S} s.
Then the plan is done, or has ended and is undone. The time is until all replicas exist again.
"""


def main():
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--kills", type=int, default=40)
    words.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    words.add_argument("--results", type=Path, help="write the results to this file, too")
    asked = words.parse_args()
    head = heading(asked.seed, os.getloadavg()[0])
    print(head)
    chance = random.Random(asked.seed)
    with tempfile.TemporaryDirectory(prefix="forebay-kills-") as directory:
        directory = Path(directory)
        args = ["--pull-rate", PULL_RATE]
        made = KilledCluster(
            Store(directory / "store"), directory, NODES, 1, args, node_timeout=None
        )
        try:
            made.begin(chance)
            begun = time.monotonic()
            kills = Kills(made, chance)
            reader = batch_reader(made.nodes[0])
            counting = Counting(made.nodes, made.counters)
            with counting:
                try:
                    kills.run(asked.kills)
                finally:
                    counting.is_over = True
            reader.end()
            values = answered(made.nodes[-1], made.counters)
            kills.wrong_counts = counting.wrong(values, 0)
            left = leftovers(made)
            took_s = time.monotonic() - begun
        finally:
            made.end()
        made.check_logs()
    page = report(kills, counting, reader, left, took_s, head)
    print(page[len(head) :])
    print(*kills.wrong_counts[:10], *left[:10], *reader.mixed[:3], sep="\n")
    if asked.results:
        asked.results.write_text(page)
    sys.exit(1 if kills.wrong or kills.wrong_counts or left or reader.mixed else 0)


if __name__ == "__main__":
    main()
