"""What a push has nodes read from the bucket: counted at a proxy of each node, by zone, beside the table's size."""

import threading

import cluster_places
from cluster_places import TABLE
from common import Done, Failed, Report, say, shown

REPLICAS = (3, 2)
LIMIT = 1.05


class Counted:
    """Bytes of the answers that went through the proxies: of runs, and of all else."""

    def __init__(self, proxies: dict):
        self.lock = threading.Lock()
        self.clear(proxies)
        for name, proxy in proxies.items():
            proxy.after = lambda exchange, status, body, name=name: self.after(name, exchange, status, body)

    def clear(self, names) -> None:
        with self.lock:
            self.bytes = {name: {"runs": 0, "other": 0, "requests": 0} for name in names}

    def after(self, name: str, exchange, status: int, body: bytes) -> tuple:
        with self.lock:
            counts = self.bytes[name]
            counts["requests"] += 1
            if exchange.method == "GET":
                kind = "runs" if f"/tables/{TABLE}/runs/" in exchange.path else "other"
                counts[kind] += len(body)
        return status, body


def one(replicas: int, records: int, pushes: int) -> list[dict]:
    rounds = []
    with cluster_places.bucket_cluster(5) as (made, proxies):
        counted = Counted(proxies)
        zones = {node.name: node.zone for node in made.nodes}
        for number in range(pushes):
            file = cluster_places.source(records, number % 2 + 1)
            counted.clear(proxies)
            before = sizes(made.store)
            more = ["--replicas", replicas] if number == 0 else []
            result = cluster_places.push(made.store, file, *more)
            if not result["swapped"]:
                raise Failed("the push was not swapped in")
            after = sizes(made.store)
            table = sum(size for name, size in after.items() if name not in before)
            with counted.lock:
                got = {name: dict(counts) for name, counts in counted.bytes.items()}
            by_zone = {zone: sum(got[name]["runs"] + got[name]["other"] for name in zones if zones[name] == zone)
                       for zone in sorted(set(zones.values()))}
            proved: dict = {}
            for proof in result["rollout"]["verified"]:
                proved[proof["node"]] = proved.get(proof["node"], 0) + proof["rows"]
            rounds.append({
                "table_bytes": table, "zones": by_zone, "nodes": got,
                "held": {name: rows / records for name, rows in proved.items()},
            })
    return rounds


def sizes(store) -> dict:
    """The runs of the table in the bucket."""
    pages = store.server.client().get_paginator("list_objects_v2")
    found = pages.paginate(Bucket=cluster_places.object_store.BUCKET, Prefix=f"{store.prefix}/tables/{TABLE}/runs/")
    return {entry["Key"]: entry["Size"] for page in found for entry in page.get("Contents", [])}


def measure(report: Report, options, done: Done, run: bool) -> None:
    records = 100_000 if options.trial else 1_000_000
    found = {}
    for replicas in REPLICAS:
        key = Done.key("bytes", replicas, records)
        if run and key not in done.results:
            say(f"bytes read from the bucket: {replicas} replicas")
            try:
                done.put(key, {"pushes": one(replicas, records, options.rounds)})
            except Exception as why:  # noqa: BLE001 - the other parts go on
                report.failed(f"bytes, {replicas} replicas", why)
        if key in done.results:
            found[replicas] = done.results[key]["pushes"]
    if found:
        write(report, found, records)


def write(report: Report, found: dict, records: int) -> None:
    report.body["bytes"] = {"records": records, "replicas": found}
    size = next(iter(found.values()))[0]["table_bytes"]
    report.text(
        f"## What nodes read from the bucket: five nodes in three zones (2, 2 and 1), {records:,} rows, {size / 1e6:.0f} MB of runs",
        "",
        "Each node reaches the S3 server through a proxy of its own that counts the bytes of all answers, documents of the catalog and "
        "manifests too. All values are new in each push. In parts of the table: the most of all pushes. What a zone holds is by what "
        "the nodes proved, the same rows on two nodes counted twice.",
    )
    rows = []
    for replicas, pushes in found.items():
        for zone in pushes[0]["zones"]:
            held = sum(part for name, part in pushes[0]["held"].items() if zone_of(name) == zone)
            rows.append([
                f"{replicas} replicas, {zone}", len(pushes), shown(held, 2),
                shown(max(one["zones"][zone] / one["table_bytes"] for one in pushes), 4),
            ])
    report.table(["", "pushes", "copies of the table held", "read from the bucket / table"], rows)
    report.targets([
        (f"{replicas} replicas: read from the bucket in a zone / table, the most",
         max(read / one["table_bytes"] for one in pushes for read in one["zones"].values()), LIMIT, " x")
        for replicas, pushes in found.items()
    ])
    command = [one["nodes"]["command"] for pushes in found.values() for one in pushes]
    most = max(counts["runs"] + counts["other"] for counts in command)
    report.text(
        f"The command that pushes reads {most / size:.3f} of the table's size at most (the gate looks at the version before, and the command "
        "waits for the rollout); it is in no zone."
    )


def zone_of(name: str) -> str:
    """tests/cluster.py gives the nodes to three zones by turns."""
    return f"z{(int(name[1:]) - 1) % 3 + 1}"
