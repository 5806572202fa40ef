"""From 10 to 50 nodes with as many rows a node (the paper's figure 11), in simulation: the planner on files, with the costs that were
measured with real processes."""

import json
import subprocess
import time

import insert_places
import insert_ways
from common import Done, Report, median_of, say, shown
from harness import BINARY

NODES = (10, 20, 30, 40, 50)
#: Of each node, as in the paper (5 million and 1 million rows on 10 servers), and partitions that it has before.
BEFORE, NEW, PARTITIONS = 500_000, 100_000, 10
RECORD_BYTES = insert_places.KEY_BYTES + insert_places.VALUE_BYTES
#: The most that a partition is to hold.
PARTITION_BYTES = 64 << 20
SAMPLES = 400
KINDS = ("uniform", "zipf", "append")
#: Drawn so often anew: where the hot parts of the keys lie is chance.
SEEDS = 9
#: Times are called flat where the longest takes so many times the shortest.
FLAT = 1.2
#: Of bytes that are inserted or moved; until part `size` has been measured, what nodes are bounded to.
BOUND_BYTES_PER_SECOND = 12 << 20


def keys_of(kind: str, nodes: int, seed: int):
    """Samples of the new keys; those of Zipf from as many equal parts of the keys, whatever the nodes."""
    import numpy

    count, chance = SAMPLES * nodes, numpy.random.default_rng([nodes, seed])
    if kind == "uniform":
        return chance.random(count)
    if kind == "append":
        return 1 - chance.random(count) / (2 * PARTITIONS * nodes)
    parts = insert_places.SUBRANGES
    shares = 1 / numpy.arange(1, parts + 1)
    part = chance.choice(chance.permutation(parts), count, p=shares / shares.sum())
    return (part + chance.random(count)) / parts


def written(kind: str, nodes: int, speed: float, seed: int) -> dict:
    parts = PARTITIONS * nodes
    table = {
        "name": "t", "boundaries": [place / parts for place in range(1, parts)], "home": [place % nodes for place in range(parts)],
        "existing": [BEFORE // PARTITIONS] * parts, "existing_samples": [(place + 0.5) / (15 * parts) for place in range(15 * parts)],
        "new_records": NEW * nodes, "new_samples": [float(key) for key in keys_of(kind, nodes, seed)],
    }
    return {"machines": nodes, "tables": [table], "pi_bytes": PARTITION_BYTES, "record_bytes": RECORD_BYTES, "bytes_per_second": speed,
            "records_per_second": speed / RECORD_BYTES}


def one(kind: str, nodes: int, speed: float) -> dict:
    return {**median_of([drawn(kind, nodes, speed, seed) for seed in range(SEEDS)]), "kind": kind, "nodes": nodes}


def drawn(kind: str, nodes: int, speed: float, seed: int) -> dict:
    begun = time.monotonic()
    words = [BINARY, "plan", "insert", "--input", "-", "--json"]
    done = subprocess.run(words, input=json.dumps(written(kind, nodes, speed, seed)), capture_output=True, text=True, timeout=300, check=True)
    took = time.monotonic() - begun
    plan = json.loads(done.stdout)
    of = plan["plan"]["price"]["nodes"]
    most = lambda field: max(node[field] for node in of)  # noqa: E731
    per_second = speed / RECORD_BYTES
    return {
        "planning_seconds": took, "planned_seconds": plan["plan"]["duration_seconds"],
        "unplanned_seconds": most("insert_before") / per_second, "splits": len(plan["splits"]), "moves": len(plan["moves"]),
        "bound_seconds": plan["lower_bound"] / per_second,
    }


def costs(report: Report) -> dict:
    """Bytes a second of a node, and seconds of a plan that do not depend on bytes, as the part `size` had them."""
    rows = [row for row in report.body.get("times", []) if row["part"] == "size"]
    found = {"bytes_per_second": BOUND_BYTES_PER_SECOND, "measured": False, "cuts_seconds": None, "wait_seconds": None}
    for row in rows:
        fetched = next((seconds for name, seconds in row["phases"].items() if name.startswith(("bringing", "copying it to"))), None)
        if row["way"] == "unplanned" and fetched:
            found.update(bytes_per_second=row["rows"] * RECORD_BYTES / fetched, measured=True)
            break
    planned = next((row for row in rows if row["way"] == "coarse"), None)
    if planned:
        found.update(cuts_seconds=planned["phases"].get(insert_ways.CUTS), wait_seconds=planned["phases"].get(insert_ways.LET_GO))
    return found


def measure(report: Report, options, done: Done, wanted: bool) -> None:
    known = costs(report)
    speed = known["bytes_per_second"]
    runs = []
    for kind in KINDS:
        for nodes in NODES:
            key = Done.key("simulated", kind, nodes, round(speed))
            if wanted and key not in done.results:
                say(f"simulated: {kind}, {nodes} nodes")
                try:
                    done.put(key, one(kind, nodes, speed))
                except subprocess.CalledProcessError as why:
                    report.failed(f"simulated, {kind}, {nodes} nodes", Exception(why.stderr[-300:]))
                except Exception as why:  # noqa: BLE001 - the other parts go on
                    report.failed(f"simulated, {kind}, {nodes} nodes", why)
            if key in done.results:
                runs.append(done.results[key])
    if runs:
        report.body["simulated"] = {"costs": known, "runs": runs}
        tell(report, report.body["simulated"])


def tell(report: Report, found: dict) -> None:
    known = found["costs"]
    measured = "as measured above" if known["measured"] else "what nodes are bounded to"
    report.text(
        "## Simulated: 10 to 50 nodes, as many rows a node",
        "",
        f"{BEFORE:,} rows before and {NEW:,} new ones for each node, {RECORD_BYTES} B each, as in the paper's figure 11; {PARTITIONS} partitions a node, at most "
        f"{PARTITION_BYTES >> 20} MiB each. Zipf picks of {insert_places.SUBRANGES} parts of the keys. {SAMPLES} samples a node; medians of {SEEDS} draws. `forebay plan insert --input` plans, and says how long moves and inserts take at {known['bytes_per_second'] / 1e6:.1f} MB "
        f"a second and node ({measured}). Cuts are not in it, nor what a plan takes whatever its bytes: see the seconds above. Unplanned is what the busiest node "
        "inserts where nothing moves.",
    )
    report.table(
        ["keys", "nodes", "planned, s", "unplanned, s", "unplanned / planned", "no plan takes less than, s", "splits", "moves", "planning took, s"],
        [
            [run["kind"], run["nodes"], shown(run["planned_seconds"], 1), shown(run["unplanned_seconds"], 1), shown(run["unplanned_seconds"] / run["planned_seconds"], 1),
             shown(run["bound_seconds"], 1), run["splits"], run["moves"], shown(run["planning_seconds"], 2)]
            for run in found["runs"]
        ],
    )


def targets(found: dict) -> list:
    rows = []
    for kind in KINDS:
        seconds = [run["planned_seconds"] for run in found["runs"] if run["kind"] == kind]
        if len(seconds) > 1:
            rows.append((f"simulated, {kind}: longest / shortest from {NODES[0]} to {NODES[-1]} nodes", max(seconds) / min(seconds), FLAT, ""))
    return rows
