"""`make bench-feast`: Forebay's online store for Feast beside Feast's own of SQLite and Redis.

Each contender materialises the same Parquet file, then reads the features of a hundred entities, in one thread of a process of its own.
FOREBAY names the forebay binary; `make bench-feast` sets it. `--records` is how many rows there are (1,000,000).
"""

import sys

import common
from common import DATA, Failed, Report, median_of, run_json, say, shown

RECORDS = 1_000_000
# What each is called in the report, in its order.
NAMES = {
    "forebay": "**Forebay**, in process",
    "forebay-server": "**Forebay**, through `forebay serve`",
    "forebay-rows": "Forebay, row by row (Feast's engine)",
    "sqlite": "SQLite",
    "redis": "Redis",
}
COLUMNS = (
    ("materialize_s", "1M rows materialised, s", 1),
    ("cpu_s", "processor time of it, s", 1),
    ("features_p50_ms", "`get_online_features` of 100, p50, ms", 2),
    ("features_p99_ms", "p99, ms", 2),
    ("features_cpu_ms", "processor time, ms", 2),
    ("read_p50_ms", "`online_read` of 100, p50, ms", 2),
    ("read_p99_ms", "p99, ms", 2),
    ("read_cpu_ms", "processor time, ms", 2),
    ("disk_mb", "disk, MB", 0),
    ("memory_mb", "memory of a server that must stay, MB", 0),
)


def main() -> None:
    options = common.arguments(__doc__, rounds=3)
    records = options.records or (RECORDS // 10 if options.trial else RECORDS)
    common.need_disk(8)
    report = Report("feast", "Feast: online stores", options)
    report.warn_of_load()
    wanted = [name for name in NAMES if options.only in name]
    runs: dict[str, list[dict]] = {name: [] for name in wanted}
    for number in range(options.rounds):
        for name in wanted:
            say(f"round {number + 1}: {name}, {records:,} rows")
            try:
                words = [sys.executable, "-W", "ignore", common.BENCH / "driver" / "feast_case.py", name, records]
                runs[name].append(run_json(words, seconds=3600))
            except Failed as error:
                report.failed(name, error)
    tell(report, {name: found for name, found in runs.items() if found}, records)


def tell(report: Report, runs: dict[str, list[dict]], records: int) -> None:
    answers = {name: {run["answer"] for run in found} for name, found in runs.items()}
    if len(set().union(*answers.values())) != 1:
        raise SystemExit(f"bench: the contenders read different features: {answers}")
    medians = {name: median_of(found) for name, found in runs.items()}
    report.body |= {"records": records, "runs": runs, "contenders": medians}
    report.body["versions"] = {
        **{package: common.python_version(package) for package in ("feast", "redis", "hiredis", "pyarrow")},
        "redis-server": common.package_version("redis-server"),
    }
    head = ["online store", *(title.replace("1M", f"{records:,}") for _, title, _ in COLUMNS)]
    report.table(head, [[NAMES[name], *(shown(found.get(key), digits) for key, _, digits in COLUMNS)] for name, found in medians.items()])
    report.text(
        f"{records:,} rows of an integer entity and ten features (three doubles, two floats, two int64, an int32, a boolean, a text of 12 "
        "characters), materialised from one Parquet file by Feast's file offline store. `get_online_features` is all that Feast does for a "
        "request of 100 entities and 10 features, `online_read` the online store's part of it. All contenders gave the same features.",
        "SQLite and Redis: Feast's local engine in batches of 10,000 rows; Redis with skip_dedup (one pipeline a batch, no reads before "
        "writes), hiredis, no persistence, by loopback. Forebay in process and through a server: its own engine, one push; row by row: "
        "Feast's local engine in batches of 10,000, into a live table whose writes are synced. Processor time is that of the process of "
        "Feast, without the server's.",
    )
    import draw_feast

    report.write(lambda base: draw_feast.stores(medians, NAMES, base))


if __name__ == "__main__":
    DATA.mkdir(exist_ok=True)
    main()
