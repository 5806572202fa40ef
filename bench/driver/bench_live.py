"""`make bench-live`: stores that take writes. The HugeDB paper's experiment (random upserts, a scan, gets) beside
other stores and an external sort; counting beside read-modify-write; the server's writes beside Redis."""

import json
import os
import shutil
import subprocess

import common
import draw_live
import live_paired
import live_server
from common import DATA, HARNESS, Done, Failed, Report, harness, median_of, ratio, say, shown
from draw_live import LABELS

#: Which write a log, among those of the upserts.
LOGGED = ("forebay-os", "forebay-100ms", "rocksdb-universal-log", "rocksdb-leveled-log", "fjall")
LSM = ("rocksdb-universal", "rocksdb-leveled", "rocksdb-universal-log", "rocksdb-leveled-log", "fjall")
PEERS = (*LSM, "lmdb", "redb")
RECORD_BYTES = 16
PARTS = ("upserts", "counting", "server", "pauses")
PAIRED = "paired"


def main() -> None:
    options = common.arguments(__doc__, rounds=1)
    if options.parts == PAIRED:
        return live_paired.main(options)
    options.parts = [part for part in PARTS if part in (options.parts or ",".join(PARTS)).split(",")]
    common.need_disk(6 if options.trial else 30)
    report = Report("live", "Stores that take writes", options)
    report.body["cap_seconds"] = options.cap
    report.body["versions"] = {
        "RocksDB": common.package_version("librocksdb-dev"), "Redis": common.package_version("redis-server"),
        **{crate: common.crate_version(crate) for crate in ("fjall", "heed", "redb")},
    }
    if "pauses" in options.parts:
        waits = Report("live-pauses", "Waits of single writes", options)
        live_server.pauses(waits, options)
        waits.write()
    if options.parts == ["pauses"]:
        return
    try:
        done = Done("live", options.fresh)
        upserts(report, options.records or (10_000_000 if options.trial else 100_000_000), options, done)
        counting(report, (options.records or (10_000_000 if options.trial else 100_000_000)) // 10, options, done)
        if "server" in options.parts:
            live_server.measure(report, options)
    finally:
        shutil.rmtree(DATA / "live", ignore_errors=True)
    report.write(lambda base: draw_live.live(report.body, base))


def contender(kind: str, name: str, records: int, store, cap: float) -> dict:
    """One run. It prints what it has measured after each phase; one that takes far too long is stopped, and has
    that. Writing ends at the cap, settling, scans and gets have parts of it; only a last merge has no end of its own."""
    out = DATA / "live" / "out"
    command = [HARNESS, kind, "--peer", name, "--records", records, "--cap", cap, "--store", store]
    limit = 2.2 * cap + 60
    with out.open("w") as reported, (DATA / "live" / "err").open("w") as errors:
        try:
            code = subprocess.run([str(word) for word in command], stdout=reported, stderr=errors, timeout=limit).returncode
        except subprocess.TimeoutExpired:
            code = None
    lines = out.read_text().strip().splitlines()
    if code or not lines:
        raise Failed((DATA / "live" / "err").read_text().strip()[-300:] or f"stopped after {limit:.0f} s")
    result = json.loads(lines[-1])
    if code is None:
        result["stopped_after_seconds"] = limit
    return result


def measured(report: Report, kind: str, names, records: int, options, done: Done) -> dict:
    """The contenders' results, those of before where there are some."""
    results = {}
    wanted = "upserts" if kind == "live" else "counting"
    for name in names:
        key = done.key(kind, name, records, options.cap, options.rounds)
        if key not in done.results and wanted in options.parts and options.only in name:
            if result := measure(report, kind, name, records, options):
                done.put(key, result)
        if key in done.results:
            results[name] = done.results[key]
    return results


def measure(report: Report, kind: str, name: str, records: int, options) -> dict:
    """One contender's runs, `options.rounds` of them; failures are reported."""
    runs = []
    store = DATA / "live" / name
    store.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(options.rounds):
        shutil.rmtree(store, ignore_errors=True)
        # What others left to be written back does not slow this one down.
        os.sync()
        say(f"{kind}: {LABELS[name]}")
        try:
            runs.append(contender(kind, name, records, store, options.cap))
        except Failed as why:
            report.failed(f"{kind}, {LABELS[name]}", why)
        finally:
            shutil.rmtree(store, ignore_errors=True)
    return {**median_of(runs), "runs": runs} if len(runs) > 1 else dict(*runs)


def upserts(report: Report, records: int, options, done: Done) -> None:
    results = measured(report, "live", harness("peers")["live"], records, options, done)
    report.body["upserts"] = {"records": records, "contenders": results}
    report.text(
        f"## {records:,} random upserts (8 B keys, 8 B values) in 200 MB of memory",
        "",
        f"Each in a process of its own, set up to take 200 MB at most while it writes, with two background threads; writing "
        f"stops after {options.cap:.0f} s. *At rest*: all is in files and no merge is due any more; the rate is upserts by that time. "
        "Pauses are of a single call (taken over sixteen); RocksDB, fjall and Forebay with a log write batches of 1,000, LMDB and redb "
        "transactions of 20,000, Forebay without a log one record a call. Write amplification is what the process had written to the device by then, space "
        "amplification the room its files take, both as multiples of the 16 bytes a record. How each is set up is told in "
        "`src/live/*.rs`.",
    )
    report.table(
        ["store", "upserts, M", "written s", "at rest s", "M/s", "worst pause ms", "pauses > 100 ms", "write amp.",
         "space amp. at rest (peak)", "peak resident MB", "of it own (anonymous)"],
        [upsert_row(name, r) for name, r in results.items()],
    )
    report.text(
        "Then, of what had been written, a full scan in order and 1,000,000 random gets, before and after `optimize` "
        f"(scans end after {options.cap / 6:.0f} s, gets after {options.cap / 12:.0f} s; - was not reached when the whole was stopped). "
        "*Resident* counts the mapped pages of files too, which the system may drop and which LMDB reads through as well; "
        "*anonymous* is what the process itself holds."
    )
    report.table(
        ["store", "scan s", "M records/s", "get us", "resident MB (anonymous)", "optimize s", "scan s after", "M records/s",
         "get us after", "resident MB (anonymous)", "write amp. after"],
        [reading_row(name, r) for name, r in results.items()],
    )
    report.targets(upsert_targets(results))


def reading_row(name: str, r: dict) -> list:
    def phase(prefix: str) -> list:
        seconds, scanned = r.get(f"{prefix}scan_seconds"), r.get(f"{prefix}scanned")
        if not seconds:
            return ["-"] * 4
        memory = [r[f"{prefix}read_peak_{kind}_bytes"] for kind in ("resident", "anonymous")]
        return [
            shown(seconds, 2) + ("" if scanned == r["written"] else ", stopped"), shown(scanned / seconds, 1, 1e-6),
            shown(r[f"{prefix}get_ns"], 2, 1e-3), f"{shown(memory[0], 0, 1e-6)} ({shown(memory[1], 0, 1e-6)})",
        ]

    written = shown(amplification(r, "after_optimize", "write_bytes"), 1) if "after_optimize" in r else "-"
    after = phase("optimized_")
    return [LABELS[name], *phase(""), shown(r.get("optimize_seconds"), 1), *after, written]


def rate(result: dict | None) -> float | None:
    return result and result["written"] / result["settled_seconds"]


def amplification(result: dict, when: str, what: str) -> float:
    return result[when][what] / (RECORD_BYTES * result["written"])


def upsert_row(name: str, r: dict) -> list:
    peak = r["peak_disk_bytes"] / (RECORD_BYTES * r["written"])
    return [
        LABELS[name] + ("" if r["complete"] else ", stopped"), shown(r["written"], 1, 1e-6), shown(r["write_seconds"], 1),
        shown(r["settled_seconds"], 1) + ("" if r["settled"] else " (still merging)"), shown(rate(r), 2, 1e-6),
        shown(r["pauses"]["worst_ms"], 1), r["pauses"]["above_100_ms"],
        shown(amplification(r, "after_writing", "write_bytes"), 1),
        f"{amplification(r, 'after_writing', 'disk_bytes'):.2f} ({peak:.2f})",
        shown(r["peak_resident_bytes"], 0, 1e-6), shown(r["peak_anonymous_bytes"], 0, 1e-6),
    ]


def best(results: dict, names, field, least: bool = True):
    found = [field(results[name]) for name in names if name in results]
    found = [number for number in found if number is not None]
    return (min if least else max)(found, default=None)


def upsert_targets(results: dict) -> list[tuple]:
    ours, logged = results.get("forebay"), results.get("forebay-os")
    unlogged_peer = best(results, [p for p in PEERS if p not in LOGGED], rate, least=False)
    logged_peer = best(results, [p for p in PEERS if p in LOGGED], rate, least=False)
    per_record = lambda r: r["settled_seconds"] / r["written"]  # noqa: E731
    sort = results.get("external-sort")
    scan = lambda r: r["scan_seconds"] / r["scanned"] if r.get("scanned") else None  # noqa: E731
    get = lambda r: r.get("optimized_get_ns")  # noqa: E731
    unmapped = results.get("forebay-unmapped")
    peak = unmapped and max(unmapped.get(f"{when}read_peak_resident_bytes", 0) for when in ("", "optimized_")) / 1e6
    of = lambda field, r: field(r) if r else None  # noqa: E731
    return [
        ("fastest peer's rate / ours, no log (ours at least 4 x)", ratio(unlogged_peer, rate(ours)), 0.25, " x"),
        ("fastest peer's rate / ours, with a log (ours at least 3 x)", ratio(logged_peer, rate(logged)), 0.333, " x"),
        ("our time / an external merge sort's", ratio(of(per_record, ours), of(per_record, sort)), 2.5, " x"),
        ("our scan / the best LSM's (ours at least 5 x as fast)", ratio(of(scan, ours), best(results, LSM, scan)), 0.2, " x"),
        ("our gets after optimize / the best peer's", ratio(of(get, ours), best(results, PEERS, get)), 1.0, " x"),
        ("our peak of resident memory, writing", ours and ours["peak_resident_bytes"] / 1e6, 200, " MB"),
        ("our peak of resident memory while reading, files not mapped", peak, 200, " MB"),
    ]


def counting(report: Report, increments: int, options, done: Done) -> None:
    results = measured(report, "delta", harness("peers")["delta"], increments, options, done)
    report.body["counting"] = {"increments": increments, "contenders": results}
    report.text(
        f"## {increments:,} increments of Zipf-distributed keys (1,000,000 keys, exponent 0.99)",
        "",
        "Forebay writes deltas and RocksDB operands of its merge operator (its own for 64-bit counters), neither of which "
        "reads; the others read, add and write: RocksDB and fjall each by itself, LMDB and redb 20,000 a transaction. "
        "fjall with its journal, the others without a log. All counters are read and summed up at the end. Memory is told without "
        "that of the program and the keys drawn.",
    )
    report.table(
        ["store", "increments, M", "written s", "M/s", "at rest s", "worst pause ms", "MB written", "MB of files",
         "peak resident MB"],
        [
            [LABELS[name], shown(r["done"], 1, 1e-6), shown(r["write_seconds"], 2), shown(r["done"] / r["write_seconds"], 2, 1e-6),
             shown(r["settled_seconds"], 2), shown(r["pauses"]["worst_ms"], 1), shown(r["write_bytes"], 0, 1e-6),
             shown(r["disk_bytes"], 0, 1e-6), shown(r["peak_resident_bytes"] - r["baseline_bytes"], 0, 1e-6)]
            for name, r in results.items()
        ],
    )


if __name__ == "__main__":
    main()
