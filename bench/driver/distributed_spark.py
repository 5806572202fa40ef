"""A Spark push beside Spark that merely writes the same rows as sorted Parquet, into a directory both."""

import shutil

import common
import packets
from common import Done, Failed, Report, median_of, say, shown
from spark_process import Spark

WORKERS = 2
#: Of Spark's files. A push of this size makes as many partitions by itself.
PARTITIONS = 8
WARM_ROWS = 20_000
LABELS = {"push": "`forebay.spark.push`", "parquet": "`repartitionByRange`, `sortWithinPartitions`, `write.parquet`"}


def measure(report: Report, options, done: Done, run: bool) -> None:
    rows = 500_000 if options.trial else 5_000_000
    keys = {(what, number): Done.key("spark", rows, number, what) for number in range(options.rounds) for what in LABELS}
    lacking = {place: key for place, key in keys.items() if run and key not in done.results}
    if lacking:
        common.need_disk(2 if options.trial else 6)
        try:
            alternate(report, rows, lacking, done)
        except Failed as why:
            report.failed("Spark", why)
    results: dict = {}
    for (what, _), key in keys.items():
        if key in done.results:
            results.setdefault(what, []).append(done.results[key])
    if len(results) == len(LABELS):
        write(report, rows, results)


def alternate(report: Report, rows: int, lacking: dict, done: Done) -> None:
    repeated = packets.Repeated()
    file, warm = packets.table(repeated, rows), packets.table(repeated, WARM_ROWS)
    where = common.fresh("spark-written")
    say(f"Spark, {WORKERS} workers, starts")
    try:
        with Spark(WORKERS) as spark:
            for what in LABELS:
                one(spark, what, warm, where / "warm", rows=WARM_ROWS)
            for (what, number), key in lacking.items():
                say(f"Spark, round {number + 1}: {what}")
                try:
                    done.put(key, one(spark, what, file, where / f"{what}-{number}", rows))
                except Failed as why:
                    report.failed(f"Spark, {LABELS[what]}", why)
    finally:
        shutil.rmtree(where, ignore_errors=True)


def one(spark: Spark, what: str, file, where, rows: int) -> dict:
    """A result that was checked; what was written is gone afterwards."""
    try:
        if what == "parquet":
            result = spark.do("parquet", file=file, to=where / "parquet", partitions=PARTITIONS)
            return {**result, "stored_bytes": check_parquet(where / "parquet", rows)}
        result = spark.do("push", file=file, store=where / "store", work_dir=where / "work")
        return {**result, "stored_bytes": check_store(where / "store", rows)}
    finally:
        shutil.rmtree(where, ignore_errors=True)


def check_parquet(path, rows: int) -> int:
    import pyarrow.parquet

    files = sorted(path.glob("*.parquet"))
    found = [pyarrow.parquet.ParquetFile(file).metadata.num_rows for file in files]
    if sum(found) != rows:
        raise Failed(f"Spark wrote {sum(found)} rows of {rows}")
    return sum(file.stat().st_size for file in files)


def check_store(path, rows: int) -> int:
    import forebay

    repeated = packets.Repeated()
    with forebay.open(path) as opened:
        table = opened["packets"]
        if table.rows_between != (rows, rows):
            raise Failed(f"{table.rows_between} rows are in the table, not {rows}")
        numbers = range(1, rows + 1, max(1, rows // 500))
        keys = [packets.table_key(repeated.time_us(number), number) for number in numbers]
        for number, value in zip(numbers, table.get_many(keys)):
            if value != repeated.summary(number).encode():
                raise Failed(f"packet {number} is {value}")
    return sum(run.stat().st_size for run in (path / "tables/packets/runs").iterdir())


def write(report: Report, rows: int, results: dict) -> None:
    middle = {what: median_of(runs) for what, runs in results.items()}
    report.body["spark"] = {"rows": rows, "workers": WORKERS, "median": middle, "runs": results}
    report.text(
        f"## A push by Spark beside sorted Parquet by Spark: {rows:,} rows, {WORKERS} workers",
        "",
        "The rows of the table above, read from the same Parquet file and written to a directory of the same disk; one session "
        "for both, in turn. "
        f"Spark's files are {PARTITIONS}, compressed as Spark does by itself; a push's partitions are as many as it makes by itself, "
        "not compressed; the packets repeat, so that Spark's files get small. "
        "A push also reads all it wrote back, compares it with what came in, and syncs; Spark does none of that. *On disk*: with a "
        "`sync` of the whole machine behind it, for both.",
    )
    report.table(
        ["what", "s", "thousand rows/s", "s, on disk", "MB written"],
        [
            [LABELS[what], shown(r["seconds"], 2), shown(rows / r["seconds"] / 1e3), shown(r["synced_seconds"], 2),
             shown(r["stored_bytes"], 0, 1e-6)]
            for what, r in middle.items()
        ],
    )
    push, parquet = middle["push"], middle["parquet"]
    report.text(
        f"A push takes {push['seconds'] / parquet['seconds']:.2f} times as long as the Parquet files; "
        f"{push['synced_seconds'] / parquet['synced_seconds']:.2f} times until all is on disk."
    )
