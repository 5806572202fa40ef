"""`make bench-build`: building stores from a flat file, by size beside MariaDB, and Parquet to serving."""

import os
import shutil
from pathlib import Path

import common
import contenders
import draw
import forebay_cli
import parquet
from common import DATA, Failed, Report, ensure_set, harness, median_of, ratio, say, shown
from mariadb import MariaDb

SETS = [("r10m-v100", 10_000_000, 100), ("r1m-v1024", 1_000_000, 1024)]
TRIAL_SETS = [("r1m-v100", 1_000_000, 100), ("r100k-v1024", 100_000, 1024)]
BUILDERS = ["forebay", "cdb", "rocksdb-block", "lmdb", "spock-binary", "sparkey"]
SIZES = [100_000, 300_000, 600_000, 1_000_000, 2_000_000]
TRIAL_SIZES = [50_000, 100_000]
CURVE = ["forebay", "cdb", "spock-binary"]


def main() -> None:
    options = common.arguments(__doc__)
    common.need_disk(6 if options.trial else 25)
    report = Report("build", "Building stores", options)
    report.body["versions"] = {
        **contenders.versions(), "MariaDB": common.package_version("mariadb-server-core"),
        "Redis": common.package_version("redis-server"), **parquet.versions(),
    }
    report.text(
        "Seconds from the flat file (in memory) to a synced store, two threads where a contender can use two; "
        "sorting counted. Memory: *anonymous* is the process's own, *resident* counts the mapped input and output too."
    )
    report.body["stores"] = {}
    for name, records, value_bytes in TRIAL_SETS if options.trial else SETS:
        stores(report, name, records, value_bytes, options)
    curve(report, TRIAL_SIZES if options.trial else SIZES, options)
    parquet.measure(report, 1_000_000 if options.trial else 10_000_000, options)
    report.write(lambda base: draw.build(report.body, base))


def stores(report: Report, name: str, records: int, value_bytes: int, options) -> None:
    say(f"{name}: {records:,} records of 16 + {value_bytes} bytes")
    data = ensure_set(name, records, value_bytes)
    chosen = [c for c in contenders.chosen(options.only) if c.name in BUILDERS]
    runs: dict = {}
    for number in range(options.rounds):
        say(f"  round {number + 1} of {options.rounds}")
        for contender in chosen:
            build_once(report, contender, data, None, runs)
    results = {key: {**median_of(these), "runs": these} for key, these in runs.items()}
    report.body["stores"][name] = results
    labels = {c.name: c.label for c in contenders.CONTENDERS}
    report.text(f"## {records:,} records, 16 B keys, {value_bytes:,} B values, from a flat file")
    report.table(
        ["store", "s", "M records/s", "file / payload", "anonymous peak MB", "resident peak MB"],
        [
            [labels[key], shown(r["seconds"], 2), shown(records / r["seconds"] / 1e6, 2),
             shown(r["file_bytes"] / r["payload_bytes"], 3), shown(r.get("peak_anonymous_bytes"), 0, 1e-6),
             shown(r["peak_rss_bytes"], 0, 1e-6)]
            for key, r in sorted(results.items(), key=lambda item: item[1]["seconds"])
        ],
    )
    if "forebay" in results:
        ours = results["forebay"]

        def against(peer: str):
            return ratio(ours["seconds"], results.get(peer, {}).get("seconds"))

        report.targets([
            ("build / cdb's writer", against("cdb"), 1.0, " x"),
            ("build / RocksDB's SST writer", against("rocksdb-block"), 1.0, " x"),
            ("build / LMDB's append", against("lmdb"), 1.0, " x"),
            ("file / payload", ratio(ours["file_bytes"], ours["payload_bytes"]), 1.08, " x"),
        ])


def build_once(report: Report, contender, data: Path, records: int | None, runs: dict) -> None:
    store = DATA / "build" / contender.name
    shutil.rmtree(store, ignore_errors=True)
    store.parent.mkdir(parents=True, exist_ok=True)
    # What earlier builds left to be written back does not slow this one down.
    os.sync()
    try:
        answer = contenders.build(contender, data, records, store)
        runs.setdefault(contender.name, []).append(answer)
    except Failed as why:
        report.failed(f"{data.name}, building {contender.label}", why)
    finally:
        shutil.rmtree(store, ignore_errors=True)


def curve(report: Report, sizes: list[int], options) -> None:
    """Build time over size, values of 1 KB, as the paper's figure 7 has it."""
    data = ensure_set(f"r{sizes[-1] // 1000}k-v1024-curve", sizes[-1], 1024)
    points: dict[tuple, list[dict]] = {}
    try:
        with MariaDb(DATA / "mariadb") as mariadb:
            for records in sizes:
                say(f"curve: {records:,} rows")
                curve_size(report, mariadb, data, records, options, points)
    except Failed as why:
        report.failed("MariaDB", why)
    labels = {c.name: c.label for c in contenders.CONTENDERS} | {
        "forebay-push": "forebay push of the CSV (parse, verify, swap too)",
        "MyISAM": "MariaDB LOAD DATA, MyISAM", "InnoDB": "MariaDB LOAD DATA, InnoDB",
    }
    rows = [
        {"name": name, "label": labels[name], "records": records, **median_of(these), "runs": these}
        for (name, records), these in points.items()
    ]
    report.body["curve"] = rows
    report.text(
        "## By size: rows of 16 + 1,024 B (the paper's figure 7)",
        "",
        "MariaDB: only LOAD DATA of a tab-separated file in the same order as the flat file, into a new table with the "
        "key as primary key; 256 MB of bulk insert and MyISAM sort buffers as in the paper, InnoDB with a 3 GiB pool, "
        "2 GiB log, no flush at commit and no double write (its pages need not be on disk when the clock stops; "
        "the others' are). Memory is the server's peak.",
    )
    report.table(
        ["seconds for", *(f"{n:,}" for n in sizes), "peak MB at the largest"],
        [
            [labels[name]]
            + [shown(next((r["seconds"] for r in rows if (r["name"], r["records"]) == (name, n)), None), 2) for n in sizes]
            + [shown(next((r.get("peak_anonymous_bytes") or r.get("peak_rss_bytes") for r in rows
                           if (r["name"], r["records"]) == (name, sizes[-1])), None), 0, 1e-6)]
            for name in dict.fromkeys(row["name"] for row in rows)
        ],
    )


def curve_size(report: Report, mariadb: MariaDb, data: Path, records: int, options, points: dict) -> None:
    chosen = [c for c in contenders.chosen("") if c.name in CURVE]
    tsv, csv = DATA / "curve.tsv", DATA / "curve.csv"
    for file, form in ((tsv, "tsv"), (csv, "csv")):
        harness("export", "--data", data, "--format", form, "--records", records, "--out", file)
    try:
        for _ in range(options.rounds):
            runs: dict = {}
            for contender in chosen:
                build_once(report, contender, data, records, runs)
            for name, these in runs.items():
                points.setdefault((name, records), []).extend(these)
            push_csv(report, csv, records, points)
            for engine in ("MyISAM", "InnoDB"):
                os.sync()
                try:
                    points.setdefault((engine, records), []).append(mariadb.load(tsv, engine, records))
                except Failed as why:
                    report.failed(f"{engine}, {records:,} rows", why)
    finally:
        tsv.unlink(missing_ok=True)
        csv.unlink(missing_ok=True)


def push_csv(report: Report, csv: Path, records: int, points: dict) -> None:
    store = DATA / "build" / "push"
    shutil.rmtree(store, ignore_errors=True)
    os.sync()
    if not forebay_cli.available():
        return
    try:
        answer = forebay_cli.push(store, "t", csv, "--column", "k:text", "--column", "v:text")
        points.setdefault(("forebay-push", records), []).append(answer)
    except Failed as why:
        report.failed(f"forebay push of {records:,} rows", why)
    finally:
        shutil.rmtree(store, ignore_errors=True)


if __name__ == "__main__":
    main()
