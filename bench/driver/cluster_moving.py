"""What readers at a fixed rate wait while a node is added, one is drained, and a table is pushed. Beside it stand the
same readers while nothing happens."""

import time

import cluster_places
from cluster_beside import Beside
from cluster_places import TABLE, middle
from common import Done, Report, say, shown

RATE = 1000
QUIET_S = 8.0
BATCH = "64M"
#: What nodes are started with, `--pull-rate`.
RATES = ("auto", "auto:20M")
LABELS = {"idle": "nothing", "add": "`forebay cluster add n5`", "drain": "`forebay cluster drain n5`", "push": "`forebay push`, all values new"}


def one(records: int, rounds: int, rate: str) -> dict:
    spans, moved = [], []
    with cluster_places.directory_cluster(4, args=("--pull-rate", rate)) as made:
        files = [cluster_places.source(records, seed) for seed in (1, 2)]
        for file in files:
            cluster_places.push(made.store, file, *(["--replicas", "2"] if file is files[0] else []))
        made.join("n5", "z2")
        ports = [made.nodes[0].gateway, made.nodes[2].gateway]

        def during(kind: str, action) -> None:
            start = time.monotonic()
            result = action()
            end = time.monotonic()
            spans.append({"kind": kind, "start": start, "end": end})
            if kind in ("add", "drain"):
                plan = result.json_lines()[-1]
                moved.append({"kind": kind, "ended": plan["ended"], "copied_bytes": plan["plan"]["copied_bytes"],
                              "batches": plan["plan"]["batches"], "seconds": end - start})
            # What follows, such as the removal of files, is no part of it, nor of what is idle.
            time.sleep(3)

        with Beside("cluster_reader.py", b"reading\n", TABLE, records, RATE, *ports) as reader:
            time.sleep(2)
            for number in range(rounds):
                during("idle", lambda: time.sleep(QUIET_S))
                for what in ("add", "drain"):
                    words = ["cluster", what, "n5", "--yes", "--batch", BATCH, "--json"]
                    during(what, lambda words=words: made.store.run(*words))
                during("push", lambda file=files[number % 2]: cluster_places.push(made.store, file))
    found = reader.found
    reads = list(zip(found["times"], found["took"]))
    for span in spans:
        span.update(slice_of([took for due, took in reads if span["start"] <= due <= span["end"]]))
        span["seconds"] = span.pop("end") - span.pop("start")
    return {"spans": spans, "moved": moved, "reads": len(reads), "failed": found["failed"][:20], "failures": len(found["failed"])}


def slice_of(took: list) -> dict:
    took = sorted(took)
    at = lambda part: cluster_places.quantile(took, part) * 1e6  # noqa: E731
    return {"reads": len(took), "p50_us": at(0.5), "p99_us": at(0.99), "p999_us": at(0.999), "max_us": took[-1] * 1e6}


def measure(report: Report, options, done: Done, run: bool) -> None:
    records = 180_000 if options.trial else 1_800_000
    rounds = min(options.rounds, 3)
    found = {}
    for rate in RATES:
        key = Done.key("moving", records, rate)
        if run and key not in done.results:
            say(f"reads while nodes are added and drained, and while a table is pushed: --pull-rate {rate}")
            try:
                done.put(key, one(records, rounds, rate))
            except Exception as why:  # noqa: BLE001 - the other parts go on
                report.failed(f"moving, --pull-rate {rate}", why)
        if key in done.results:
            found[rate] = done.results[key]
    if found:
        write(report, found, records)


def write(report: Report, found: dict, records: int) -> None:
    report.body["moving"] = {"records": records, "rates": found}
    reads, failures = (sum(one[what] for one in found.values()) for what in ("reads", "failures"))
    report.text(
        f"## Reads while nodes come and go: {records:,} rows, {records * 112 / 1e6:.0f} MB of keys and values, two replicas",
        "",
        f"{RATE:,} GETs a second of random keys through each of two gateways of four nodes over a directory, one at a time each (open loop: "
        "a read that was due while the one before was not answered counts from then), while a fifth node is added, drained again "
        f"(`--batch {BATCH}`), and the table is pushed. Everything shares two cores. Microseconds; medians of the rounds. Reads of "
        f"what is elsewhere are forwarded. {reads:,} reads in all, {failures} failed.",
    )
    for rate, these in found.items():
        report.text(f"Nodes with `--pull-rate {rate}`:")
        table(report, these)
    report.text(
        "The rule of `--pull-rate auto` (docs/how-to/use-object-storage.md): twice a second a node looks at the 99th percentile of what commands took since "
        "the last look, from their turn to their reply. Above twice the measure of quiet times and 0.1 ms the rate is halved, not below 4 MiB "
        "a second; below one and a half times the measure and 0.05 ms it rises by an eighth. That time tells hardly of a processor that others keep "
        "busy, as here copies, the pushing command and the reader do; the reader sees that wait, the rule does not. `auto:20M` is the same, and at most 20 MiB a second "
        "for each node; what the command that pushes does is not held by it.",
    )


def table(report: Report, found: dict) -> None:
    kinds = {kind: [span for span in found["spans"] if span["kind"] == kind] for kind in LABELS}
    idle = middle(span["p99_us"] for span in kinds["idle"])
    copied = {what: middle(one["copied_bytes"] for one in found["moved"] if one["kind"] == what) for what in ("add", "drain")}
    report.table(
        ["under way", "times", "it took, s", "copied MB", "p50", "p99", "p99.9", "longest", "p99 / idle"],
        [
            [label, len(spans), shown(middle(s["seconds"] for s in spans), 1), shown(copied.get(kind), 0, 1e-6),
             *(shown(middle(s[field] for s in spans)) for field in ("p50_us", "p99_us", "p999_us", "max_us")),
             shown(middle(s["p99_us"] for s in spans) / idle, 2)]
            for kind, label in LABELS.items() if (spans := kinds[kind])
        ],
    )
