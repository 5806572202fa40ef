"""`make bench-read`: warm and cold gets in process, one process a contender, rounds interleaved."""

import common
import contenders
import draw
from common import Report, ensure_set, median_of, ratio, say, shown

SETS = [("r10m-v100", 10_000_000, 100), ("r1m-v1024", 1_000_000, 1024)]
TRIAL_SETS = [("r1m-v100", 1_000_000, 100), ("r100k-v1024", 100_000, 1024)]
COLD = {"forebay", "cdb", "spock-binary", "spock-interpolation", "lmdb"}


def main() -> None:
    options = common.arguments(__doc__)
    common.need_disk(4 if options.trial else 30)
    report = Report("read", "Warm and cold gets, in process", options)
    report.body["versions"] = contenders.versions()
    report.body["sets"] = {}
    explain(report)
    chosen = contenders.chosen(options.only)
    for name, records, value_bytes in TRIAL_SETS if options.trial else SETS:
        say(f"{name}: {records:,} records of 16 + {value_bytes} bytes")
        data = ensure_set(name, records, value_bytes)
        report.body["sets"][name] = measure_set(report, chosen, data, options)
        report_set(report, name, records, value_bytes)
    tuning(report, chosen)
    report.write(lambda base: draw.read(report.body, base))


def measure_set(report: Report, chosen: list, data, options) -> dict:
    (data.parent / "stores" / data.name).mkdir(parents=True, exist_ok=True)
    built, runs = {}, {}
    for contender in chosen:
        try:
            built[contender.name] = contenders.ensure_built(contender, data)
        except common.Failed as why:
            report.failed(f"{data.name}, building {contender.label}", why)
    for number in range(options.rounds):
        say(f"  round {number + 1} of {options.rounds}")
        # Asking for huge pages last, so that the plain rows of a round find the files as read.
        for huge in (False, True):
            for contender in chosen:
                if contender.name in built and (contender.mapped or not huge):
                    one_run(report, contender, data, huge, runs)
    out = {}
    for key, these in runs.items():
        name = key.removesuffix("+huge")
        out[key] = {**median_of(these), "runs": these, "build": built[name]}
    if "forebay" in built:
        out_cold = {c.name: cold(report, c, data) for c in chosen if c.name in COLD and c.name in built}
        for name, answer in out_cold.items():
            if answer and name in out:
                out[name]["cold"] = answer
    return out


def one_run(report: Report, contender, data, huge: bool, runs: dict) -> None:
    key = contender.name + ("+huge" if huge else "")
    try:
        runs.setdefault(key, []).append(contenders.read(contender, data, huge))
    except common.Failed as why:
        report.failed(f"{data.name}, reading {key}", why)
        if not runs[key]:
            del runs[key]


def cold(report: Report, contender, data) -> dict | None:
    try:
        return contenders.cold(contender, data, 1000)
    except common.Failed as why:
        report.failed(f"{data.name}, cold gets of {contender.label}", why)
        return None


def explain(report: Report) -> None:
    report.text(
        "One process a contender and round, one thread unless said. All read the same flat input and are asked "
        "for the same keys in the same order; each run reads a fresh copy of its store, as where a file lies in physical memory "
        "shows in the figures (up to one half here); every answer's first and last eight bytes are added up and must match. "
        "*independent*: the processor may overlap gets; *dependent*: each query's place is computed from the answer "
        "before. The loops count the processor time of the reading thread; p50 and p99 are each get timed by the wall clock and include its cost (20 to 40 ns). Batches of 16 go "
        "through a contender's own call for many keys where it has one, else one after the other.",
        "",
        "Each run begins with the store's files dropped from the page cache. In the rows of the first table they are "
        "then read through once and mapped. In those of the second the mapping is advised MADV_HUGEPAGE and then "
        "touched from front to back: Forebay asks for huge pages by itself, so the mapped peers get the same chance. "
        "(Where the file system uses large folios, reading a file through already puts much of it into huge pages: "
        "column *huge* is the share of the mapping that huge page-table entries held.)",
    )


def report_set(report: Report, name: str, records: int, value_bytes: int) -> None:
    results = report.body["sets"][name]
    payload = records * (16 + value_bytes)
    report.text(f"## {records:,} records, 16 B keys, {value_bytes:,} B values (payload {payload / 1e9:.2f} GB)")
    head = [
        "store", "get ns (independent)", "(dependent)", "p50", "p99", "miss ns", "batch of 16, ns a get",
        "2 threads, M/s", "index B a key", "file / payload", "build s", "open ms", "huge",
    ]
    labels = {c.name: c.label for c in contenders.CONTENDERS}
    for suffix, title in (("", "As read through once:"), ("+huge", "Mappings advised MADV_HUGEPAGE:")):
        rows = [
            row_of(labels[key.removesuffix("+huge")], r, records, payload)
            for key, r in results.items() if key.endswith("+huge") == bool(suffix)
        ]
        if rows:
            report.text(title)
            report.table(head, rows)
    cold_table(report, results, labels)
    targets(report, results, records, payload, value_bytes)


def row_of(label: str, r: dict, records: int, payload: int) -> list:
    mapped = r.get("mapped") or {}
    index = r.get("index_bytes")
    file_bytes = r.get("file_bytes") or 0
    return [
        label, shown(r["independent_ns"]), shown(r["dependent_ns"]), shown(r["p50_ns"]), shown(r["p99_ns"]),
        shown(r["miss_ns"]), shown(r["batch16_ns"]), shown(r["two_threads_mps"], 1),
        "-" if index is None else shown(index / records, 2),
        shown(file_bytes / payload, 3) if file_bytes else "-", shown(r["build"]["seconds"], 1),
        shown(r["open_seconds"], 1, 1000),
        f"{mapped['huge'] / mapped['resident']:.0%}" if mapped.get("resident") else "-",
    ]


def cold_table(report: Report, results: dict, labels: dict) -> None:
    rows = []
    for key, r in results.items():
        if "cold" in r:
            c = r["cold"]
            rows.append([
                labels[key], shown(c["cold_gets"]), shown(c["disk_reads"]["median"]), shown(c["disk_reads"]["mean"], 2),
                shown(c["bytes"]["median"] / 1024, 1), shown(c["us"]["median"]), shown(c["us"]["p99"]),
            ] if c["cold_gets"] else [labels[key], 0, *["-"] * 5])
    if rows:
        report.text(
            "Cold gets (store open, then its files dropped from the page cache, 1,000 gets of different keys). Of those "
            "that went to the device: reads that the disk completed around the get (the whole machine's), bytes read "
            "for this process, time:"
        )
        report.table(
            ["store", "gets that went to the device", "device reads a get (median)", "(mean)", "KiB read a get (median)",
             "us (median)", "us (p99)"],
            rows,
        )


def targets(report: Report, results: dict, records: int, payload: int, value_bytes: int) -> None:
    ours = results.get("forebay")
    if not ours:
        return

    def best(field: str, *names: str):
        # Their better row counts: with or without huge pages asked for.
        found = [r[field] for key, r in results.items() if key.removesuffix("+huge") in names]
        return min(found, default=None)

    rocks = ("rocksdb-cuckoo", "rocksdb-plain", "rocksdb-block")
    spock = ("spock-binary", "spock-interpolation")
    mine = best("independent_ns", "forebay")
    rows = [
        (f"get / {label}", ratio(mine, best("independent_ns", *names)), limit, " x")
        for label, names, limit in (
            ("cdb", ("cdb",), 0.5), ("Spock's format, better search", spock, 0.25), ("LMDB", ("lmdb",), 0.25),
            ("Sparkey", ("sparkey",), 0.35), ("RocksDB's best table", rocks, 0.3),
        )
    ]
    rows += [
        ("batch of 16 / single get", ratio(best("batch16_ns", "forebay"), mine), 0.3, " x"),
        ("miss / cdb's miss", ratio(best("miss_ns", "forebay"), best("miss_ns", "cdb")), 1.0, " x"),
        ("file / payload", ratio(ours.get("file_bytes"), payload), 1.08, " x"),
    ]
    if value_bytes == 100:
        rows.append(("index bytes a key", ratio(ours.get("index_bytes"), records), 0.15, " B"))
    if "cold" in ours:
        rows.append(("device reads of a cold get (median)", ours["cold"]["disk_reads"]["median"], 1, ""))
    report.text("Targets (each contender by the better of its rows):")
    report.targets(rows)


def tuning(report: Report, chosen: list) -> None:
    report.text("## How each is tuned")
    report.text(*[f"- {c.label}: {c.tuning}." for c in chosen])


if __name__ == "__main__":
    main()
