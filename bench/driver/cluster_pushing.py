"""What readers at a fixed rate wait while a table is pushed: beside one server, and beside the nodes of a cluster."""

import contextlib
import json
import subprocess
import sys
import time

import cluster_places
from cluster_beside import Beside
from cluster_moving import slice_of
from cluster_places import TABLE, middle, on_core
from common import Done, Report, say, shown
from harness import Server, Store

RATE = 500
QUIET_S = 4.0
#: How the push is done, by the words of the report: its options, and whether it has a core of its own.
WAYS = {
    "on the same two cores": ([], False),
    "on the same two cores, `--nice 0`": (["--nice", "0"], False),
    "on a core of its own": ([], True),
}
SERVERS = ("one server", "three nodes, two replicas")
#: The controls: processes of the lowest priority that have nothing to do with Forebay. What they cost readers, this
#: system asks of readers for any work beside them.
_LOWEST = "import os, sys\nos.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\n"
CONTROLS = {
    "compute": _LOWEST + "while True: sum(range(1_000_000))",
    "write": _LOWEST
    + """
data = os.urandom(1 << 20)
with open(sys.argv[1], "wb", buffering=0) as file:
    while True:
        file.seek(0)
        for number in range(256):
            file.write(data)
            if number % 16 == 15:
                os.fdatasync(file)
""",
}


def one(kind: str, way: str, records: int, rounds: int) -> dict:
    options, is_apart = WAYS[way]
    files = [cluster_places.source(records, seed) for seed in (1, 2)]
    spans = []
    with contextlib.ExitStack() as stack:
        if is_apart:
            stack.enter_context(on_core(0))
        if kind == SERVERS[0]:
            store = Store(stack.enter_context(cluster_places.folder()) / "store")
            cluster_places.push(store, files[0])
            ports = [stack.enter_context(Server(store)).port]
        else:
            made = stack.enter_context(cluster_places.directory_cluster(3))
            store, ports = made.store, [node.gateway for node in made.nodes]
            cluster_places.push(store, files[0], "--replicas", "2")
        scratch = stack.enter_context(cluster_places.folder())
        with Beside("cluster_reader.py", b"reading\n", TABLE, records, RATE, *ports) as reader:
            time.sleep(2)
            for number in range(rounds):
                spans.append(span("idle", lambda: time.sleep(QUIET_S)))
                with on_core(1) if is_apart else contextlib.nullcontext():
                    for control in CONTROLS:
                        with controlled(control, 1 if is_apart else 2, scratch):
                            spans.append(span(control, lambda: time.sleep(QUIET_S)))
                        time.sleep(1)
                    push = lambda file=files[(number + 1) % 2]: cluster_places.push(store, file, *options)  # noqa: E731
                    spans.append(span("push", push))
                # What follows, such as the removal of files, is no part of it, nor of what is idle.
                time.sleep(2)
    found = reader.found
    reads = list(zip(found["times"], found["took"]))
    for each in spans:
        each.update(slice_of([took for due, took in reads if each["start"] <= due <= each["end"]]))
        each["seconds"] = each.pop("end") - each.pop("start")
    return {"spans": spans, "reads": len(reads), "failures": len(found["failed"]), "failed": found["failed"][:20]}


@contextlib.contextmanager
def controlled(control: str, processes: int, folder):
    """So many processes of a control, until the end."""
    started = [
        subprocess.Popen([sys.executable, "-c", CONTROLS[control], str(folder / f"control-{number}")]) for number in range(processes)
    ]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def span(kind: str, action) -> dict:
    start = time.monotonic()
    action()
    return {"kind": kind, "start": start, "end": time.monotonic()}


def measure(report: Report, options, done: Done, run: bool) -> None:
    records = 300_000 if options.trial else 3_000_000
    rounds = options.rounds
    found = {}
    for kind in SERVERS:
        for way in WAYS:
            key = Done.key("pushing", kind, way, records, *CONTROLS)
            if run and key not in done.results:
                say(f"reads while a table is pushed {way}, beside {kind}")
                try:
                    done.put(key, one(kind, way, records, rounds))
                except Exception as why:  # noqa: BLE001 - the other parts go on
                    report.failed(f"pushing {way}, {kind}", why)
            if key in done.results:
                found[json.dumps([kind, way])] = done.results[key]
    if found:
        write(report, found, records)


def write(report: Report, found: dict, records: int) -> None:
    report.body["pushing"] = {"records": records, "found": found}
    reads, failures = (sum(one[what] for one in found.values()) for what in ("reads", "failures"))
    report.text(
        f"## Reads while a table is pushed: {records:,} rows, {records * 112 / 1e6:.0f} MB of keys and values",
        "",
        f"{RATE:,} GETs a second of random keys through each server or gateway, one at a time each (open loop: a read that was due while the one "
        "before was not answered counts from then), while another version of all rows is pushed. Servers, reader and the command share two cores; "
        "with a core of its own the command has one, and all else the other. The reader is a process of the default priority: what it waits for a "
        f"processor counts, too. Microseconds; medians of the rounds. {reads:,} reads in all, {failures} failed.",
        "",
        "The controls are no part of Forebay: as many processes of the lowest priority (SCHED_IDLE) as the push has cores, which only compute, or only "
        "write files and sync them. No work beside readers can cost them less than these do on the same machine.",
    )
    rows = []
    for key, one in found.items():
        kind, way = json.loads(key)
        by_kind = lambda what: [each for each in one["spans"] if each["kind"] == what]  # noqa: E731
        idle, push = by_kind("idle"), by_kind("push")
        ratio = lambda spans: middle(each["p99_us"] / before["p99_us"] for before, each in zip(idle, spans))  # noqa: E731
        of = lambda spans, field: middle(each[field] for each in spans)  # noqa: E731
        rows.append([
            kind, way, len(push), shown(of(push, "seconds"), 1),
            *(shown(of(spans, field)) for field in ("p50_us", "p99_us", "p999_us") for spans in (idle, push)),
            shown(ratio(push), 2), *(shown(ratio(by_kind(control)), 2) for control in CONTROLS),
        ])
    report.table(
        ["beside", "push", "times", "it took, s", "p50 idle", "during", "p99 idle", "during", "p99.9 idle", "during", "p99 during / idle",
         "compute / idle", "write / idle"],
        rows,
    )
