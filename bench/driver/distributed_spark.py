"""A Spark push beside Spark that merely writes the same rows as sorted Parquet, into a directory both."""

import shutil

import common
import packets
import people
from common import Done, Failed, Report, median_of, ratio, say, shown
from spark_process import Spark

WORKERS = 2
#: Of Spark's files. A push of this size makes as many partitions by itself.
PARTITIONS = 8
LABELS = {"push": "`forebay.spark.push`", "parquet": "`repartitionByRange`, `sortWithinPartitions`, `write.parquet`"}
SETS = {"packets": "packets, 3 columns", "people": "people, 7 columns"}
#: Of what Spark takes for sorted Parquet.
LIMIT = 1.4
#: So many rows of a table are compared.
COMPARED = 500


def measure(report: Report, options, done: Done, run: bool) -> None:
    rows = 500_000 if options.trial else 5_000_000
    numbers = range(options.rounds)
    keys = {
        (of, what, number): Done.key("spark", rows, number, of, what) for of in SETS for number in numbers for what in LABELS
    }
    lacking = {place: key for place, key in keys.items() if run and key not in done.results}
    if lacking:
        common.need_disk(2 if options.trial else 6)
        try:
            alternate(report, rows, lacking, done)
        except Failed as why:
            report.failed("Spark", why)
    results: dict = {}
    for (of, what, _), key in keys.items():
        if key in done.results:
            results.setdefault(of, {}).setdefault(what, []).append(done.results[key])
    if len(results) == len(SETS) and all(len(of) == len(LABELS) for of in results.values()):
        write(report, rows, results)


def file_of(of: str, rows: int):
    return packets.table(packets.Repeated(), rows) if of == "packets" else people.table(rows)


def alternate(report: Report, rows: int, lacking: dict, done: Done) -> None:
    files = {of: file_of(of, rows) for of in SETS}
    where = common.fresh("spark-written")
    say(f"Spark, {WORKERS} workers, starts")
    try:
        with Spark(WORKERS) as spark:
            # What Java compiles it compiles in the first runs, which are whole ones.
            for of in dict.fromkeys(of for of, _, _ in lacking):
                for what in LABELS:
                    say(f"Spark, before all rounds: {of}, {what}")
                    one(spark, of, what, files[of], where / "warm", rows)
            for (of, what, number), key in lacking.items():
                say(f"Spark, round {number + 1}: {of}, {what}")
                try:
                    done.put(key, one(spark, of, what, files[of], where / f"{what}-{number}", rows))
                except Failed as why:
                    report.failed(f"Spark, {of}, {LABELS[what]}", why)
    finally:
        shutil.rmtree(where, ignore_errors=True)


def one(spark: Spark, of: str, what: str, file, where, rows: int) -> dict:
    """A result that was checked; what was written is gone afterwards."""
    try:
        if what == "parquet":
            result = spark.do("parquet", file=file, to=where / "parquet", partitions=PARTITIONS, rows=of)
            return {**result, "stored_bytes": check_parquet(where / "parquet", rows)}
        result = spark.do("push", file=file, store=where / "store", work_dir=where / "work", rows=of)
        return {**result, "stored_bytes": check_store(where / "store", of, file, rows)}
    finally:
        shutil.rmtree(where, ignore_errors=True)


def check_parquet(path, rows: int) -> int:
    import pyarrow.parquet

    files = sorted(path.glob("*.parquet"))
    found = [pyarrow.parquet.ParquetFile(file).metadata.num_rows for file in files]
    if sum(found) != rows:
        raise Failed(f"Spark wrote {sum(found)} rows of {rows}")
    return sum(file.stat().st_size for file in files)


def check_store(path, of: str, file, rows: int) -> int:
    import forebay
    import pyarrow.parquet

    wanted = pyarrow.parquet.read_table(file).take(list(range(0, rows, max(1, rows // COMPARED)))).to_pylist()
    with forebay.open(path) as opened:
        table = opened[of]
        if table.rows_between != (rows, rows):
            raise Failed(f"{table.rows_between} rows are in the table, not {rows}")
        found = table.get_many([key_of(of, row) for row in wanted])
    for row, value in zip(wanted, found):
        if value != (row["value"].encode() if of == "packets" else row):
            raise Failed(f"the row {row} is {value}")
    return sum(run.stat().st_size for run in (path / f"tables/{of}/runs").iterdir())


def key_of(of: str, row: dict) -> str:
    return packets.table_key(row["time_us"], row["packet"]) if of == "packets" else people.TABLE_KEY.format(**row)


def write(report: Report, rows: int, results: dict) -> None:
    middle = {of: {what: median_of(runs) for what, runs in found.items()} for of, found in results.items()}
    report.body["spark"] = {"rows": rows, "workers": WORKERS, "median": middle, "runs": results}
    report.text(
        f"## A push by Spark beside sorted Parquet by Spark: {rows:,} rows, {WORKERS} workers",
        "",
        "Two sets of rows: the packets of the table above, sorted by time, each a text of about 50 characters beside its key; and "
        "people, seven columns (numbers, texts, a time, a flag) in no order, stored whole. Both are read from the same Parquet file "
        "and written to a directory of the same disk; one session for all, in turn, after a whole run of each that does not count. "
        f"Spark's files are {PARTITIONS}, compressed as Spark does by itself; a push's partitions are as many as it makes by itself, "
        "not compressed; the packets repeat, so that Spark's files of them get small. "
        "A push also reads all it wrote back, compares it with what came in, and syncs; Spark does none of that. *Processor s*: of "
        "all processes, the driver's, the JVMs' and Python's. *On disk*: with a `sync` of the whole machine behind it, for both.",
    )
    report.table(
        ["rows", "what", "s", "processor s", "thousand rows/s", "s, on disk", "MB written"],
        [
            [SETS[of], LABELS[what], shown(r["seconds"], 2), shown(r["cpu_seconds"], 1), shown(rows / r["seconds"] / 1e3),
             shown(r["synced_seconds"], 2), shown(r["stored_bytes"], 0, 1e-6)]
            for of, found in middle.items() for what, r in found.items()
        ],
    )
    report.targets([
        (f"a push / sorted Parquet, {SETS[of]}, {what}", ratio(found["push"][field], found["parquet"][field]), LIMIT, " x")
        for of, found in middle.items()
        for what, field in (("processor time", "cpu_seconds"), ("time", "seconds"))
    ])
