"""The ways in which rows are put into a table, and where the seconds go in each."""

import functools
import json
import random
import threading
import time

import insert_places
from common import Failed, run
from harness import BINARY

#: {way: (label, options of forebay load)}.
WAYS = {
    "planned": ("planned: `load --plan auto`", ["--plan", "auto"]),
    "coarse": ("planned, partitions of a node's share (`--partition-bytes`)", ["--plan", "auto"]),
    "unplanned": ("unplanned runs: `load --plan none`", ["--plan", "none"]),
    "random": ("rows one at a time, random order, 1 client", ["--insert", "rows", "--order", "random", "--clients", "1", "--batch-rows", "1"]),
    "sorted": ("rows one at a time, sorted, 1 client", ["--insert", "rows", "--order", "sorted", "--clients", "1", "--batch-rows", "1"]),
    "random 8": ("rows one at a time, random order, 8 clients", ["--insert", "rows", "--order", "random", "--clients", "8", "--batch-rows", "1"]),
    "sorted 8": ("rows one at a time, sorted, 8 clients", ["--insert", "rows", "--order", "sorted", "--clients", "8", "--batch-rows", "1"]),
    "batches": ("batches of 500 rows, random order, 8 clients", ["--insert", "rows", "--order", "random", "--clients", "8", "--batch-rows", "500"]),
}
ROWS = [way for way, (_, words) in WAYS.items() if "--insert" in words]
#: Between two looks at what the coordinator does.
LOOK_S = 0.3
#: How the steps of a plan are called, beside the stages that the command tells.
CUTS, MOVES, LET_GO = "cutting partitions", "moving partitions", "old holders wait"


@functools.cache
def has_rows() -> bool:
    """Whether the binary can insert rows in place of runs."""
    return "--batch-rows" in run([BINARY, "load", "--help"])


class Watching(threading.Thread):
    """Asks the coordinator what it does of a plan: {step: [from, to]} by the monotonic clock."""

    def __init__(self, made):
        super().__init__(daemon=True)
        self.made, self.over, self.spans = made, threading.Event(), {}

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join(30)

    def run(self):
        last = None
        while not self.over.wait(LOOK_S):
            now = time.monotonic()
            if last in self.spans:
                self.spans[last][1] = now
            last = step_of(self.made.ask_coordinator())
            if last:
                self.spans.setdefault(last, [now, now])[1] = now


def step_of(heard) -> str | None:
    plan = heard and heard["plan"]
    if not plan:
        return None
    if plan["splits_left"]:
        return CUTS
    return MOVES if "copying" in plan["stage"] or plan["stage"] == "between" else LET_GO


class Telling(threading.Thread):
    """Reads what a command tells: {stage: [from, to]} by the monotonic clock, and the other words."""

    def __init__(self, stream):
        super().__init__(daemon=True)
        self.stream, self.stages, self.words = stream, {}, []
        self.start()

    def run(self):
        for line in self.stream:
            now = time.monotonic()
            reported = json.loads(line) if line.startswith(b"{") else {}
            if reported.get("event") in ("progress", "stage"):
                span = self.stages.setdefault(reported["stage"], [now - reported["seconds"], now])
                span[1] = now
            else:
                self.words.append(reported.get("text") or line.decode(errors="replace").strip())


def share(source, nodes: int) -> int:
    """Bytes of a node's part of the source's rows: then each has a piece or two to take in."""
    return max(1 << 20, int(1.1 * source.stat().st_size / nodes))


def insert(made, table: str, way: str, source, begins=None, seconds: float = 600) -> dict:
    """Puts the source's rows into the table in that way, and tells how long it took. The command calls `begins` before all else."""
    words = ["load", table, source, "--key", "{k}", "--value", "v", *WAYS[way][1], "--json"]
    if way == "coarse":
        words += ["--partition-bytes", share(source, len(made.nodes))]
    for _ in range(60):
        begun = time.monotonic()
        with Watching(made) as watching:
            process = made.store.start(*words, preexec_fn=begins)
            telling = Telling(process.stderr)
            killer = threading.Timer(seconds, process.kill)
            killer.start()
            out = process.stdout.read()
            code = process.wait()
            took = time.monotonic() - begun
            killer.cancel()
            telling.join(10)
        if code == 0:
            break
        problem = " / ".join(telling.words[-3:])
        # Which node leads what was told a moment ago.
        if "ask again" not in problem:
            raise Failed(f"forebay {' '.join(map(str, words))}: {problem}")
        time.sleep(1)
    else:
        raise Failed(f"no plan is made: {problem}")
    spans = {**telling.stages, **watching.spans}
    return {
        "way": way, "seconds": took, "rows": json.loads(out)["rows"], "begun": begun, "ended": begun + took, "spans": spans,
        "phases": {name: span[1] - span[0] for name, span in spans.items()}, "told": telling.words,
    }


def check(made, table: str, source, count: int = 300) -> None:
    """Reads some of the source's rows back, by their keys."""
    import pyarrow.parquet

    rows = pyarrow.parquet.ParquetFile(source)
    group = random.Random(count).randrange(rows.num_row_groups)
    some = rows.read_row_group(group).slice(0, count).to_pydict()
    with made.nodes[-1].through_gateway() as client:
        found = client.mget([f"{table}:{key}" for key in some["k"]])
    wrong = [key for key, value, got in zip(some["k"], some["v"], found) if value != got]
    if wrong:
        raise Failed(f"{len(wrong)} of {len(found)} rows that were loaded are not there, as {wrong[0]}")


def fresh_table(made, table: str, base: int, replicas: int, is_planned: bool = True) -> None:
    """A table with uneven partitions, and rows that lie evenly over its keys; for a plan, what it holds is known to the coordinator."""
    words = ["--order", "ordered", *insert_places.boundaries(), "--durability", "os", "--replicas", replicas]
    made.store.run("create", table, *words)
    if base:
        made.store.json("load", table, insert_places.source("uniform", base, 3), "--key", "{k}", "--value", "v")
    # Leaders look every 10 s at how much there is.
    time.sleep(SIZES_S if base and is_planned else 2)


#: Until the coordinator has heard how much partitions hold.
SIZES_S = 12
