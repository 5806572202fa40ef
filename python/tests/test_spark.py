"""forebay.spark.push in a session on this machine: versions that it makes, and refusals."""

import inspect
import re
import signal
import struct
import subprocess
import sys
import textwrap
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from data import real_flights
from pyspark import TaskContext
from pyspark.sql import functions as F
from spark_harness import counted, manifest, runs, skew

import forebay
import forebay.spark
from examples import run_example
from forebay import _sampling, _tasks

ROOT = Path(__file__).resolve().parents[2]
FLIGHT = "{year}/{month:02}/{day:02}/{carrier}/{flight:05}/{origin}"


@pytest.fixture
def spark(sparks):
    return sparks.get("local")


def numbers(spark, rows, parts=4):
    """Returns rows of a scattered key, a text and a number."""
    n = F.col("id")
    return spark.range(0, rows, 1, parts).select(
        ((n * 7919) % 1_000_003).alias("id"),
        F.concat(F.lit("name "), n).alias("name"),
        (n / 4).alias("half"),
    )


def test_a_push_makes_the_runs_of_a_local_push(spark, path, tmp_path):
    """The same rows with the same boundaries make the same runs, byte for byte."""
    df = numbers(spark, 20_000)
    local, rows = str(tmp_path / "local"), df.toArrow()
    for order, boundaries in [("ordered", ["3", "55", "8"]), ("hashed", [4096, 8192, 10_000])]:
        given = {"order": order, "key": "{id}", "compression": "zstd"}
        made = forebay.spark.push(df, order, store=path, boundaries=boundaries, **given)
        assert (made.version, made.rows, made.swapped) == (1, 20_000, True)
        other = forebay.push(rows, order, store=local, boundaries=boundaries, **given)
        assert (made.rows, made.bytes) == (other.rows, other.bytes)
        assert runs(path, order) == runs(local, order) and len(runs(path, order)) == 4
        assert counted(path, order) == counted(local, order)
        with forebay.open(path) as store:
            assert store[order]["7919"] == {"id": 7919, "name": "name 1", "half": 0.25}
            assert store[order].verify().rows == 20_000


def test_every_type_of_a_column_that_a_table_takes(spark, path, tmp_path):
    columns = {
        "id int not null": 1,
        "s string": "a",
        "t timestamp": datetime(2026, 1, 2, 3, 4, 5, 678, UTC),
        "w timestamp_ntz": datetime(2026, 1, 2, 3, 4, 5, 678),
        "d decimal(10,2)": Decimal("1.50"),
        "day date": date(2026, 5, 6),
        "b binary": b"\x00x",
        "f float": 1.5,
        "y boolean": True,
        "none long": None,
    }
    df = spark.createDataFrame([tuple(columns.values())], ", ".join(columns))
    forebay.spark.push(df, "t", key="{id}", partitions=1, store=path)
    forebay.push(df.toArrow(), "t", key="{id}", partitions=1, store=tmp_path / "local")
    with forebay.open(path) as store:
        assert store["t"][1] == dict(zip(df.columns, columns.values(), strict=True))
    assert manifest(path)["schema"] == manifest(tmp_path / "local")["schema"]
    assert runs(path) == runs(tmp_path / "local")


def test_a_data_frame_of_spark_is_a_source_of_a_local_push(spark, path):
    df = spark.sql("select 1 id, timestamp'2020-01-01' at, 'x' text")
    assert forebay.push(df, "t", key="{id}", store=path).rows == 1
    row = forebay.open(path)["t"]["1"]
    assert row == {"id": 1, "at": datetime(2019, 12, 31, 23, tzinfo=UTC), "text": "x"}


def test_types_that_columns_are_given(spark, path):
    df = numbers(spark, 10)
    column = {"half": "int8:truncate", "name": "binary"}
    result = forebay.spark.push(df, "t", key="{id}", column=column, partitions=2, store=path)
    assert [(lossy.column, lossy.values) for lossy in result.lossy] == [("half", 7)]
    assert "half: 7 values truncated" in str(result)
    with forebay.open(path) as store:
        assert store["t"][7919 * 7] == {"id": 7919 * 7, "name": b"name 7", "half": 1}
    with pytest.raises(forebay.DataError, match="'half' holds .*which int8 does not hold"):
        forebay.spark.push(df, "t", key="{id}", column={"half": "int8"}, partitions=2, store=path)


def test_a_million_flights_cut_by_samples(spark, path, tmp_path):
    """Three years of flights, sorted by time in their source as in the table."""
    source = str(tmp_path / "flights.parquet")
    pq.write_table(real_flights().drop_columns(["time_hour"]), source, row_group_size=50_000)
    more = spark.range(3).withColumnRenamed("id", "more")
    df = spark.read.parquet(source).crossJoin(more)
    df = df.withColumn("year", F.col("year") + F.col("more")).drop("more")
    updates = []
    result = forebay.spark.push(
        df,
        "flights",
        key=FLIGHT,
        order="ordered",
        partitions=8,
        store=path,
        progress=updates.append,
    )
    assert result.rows == 1_010_328
    stages = {p.stage: p for p in updates}
    for name in ("sampling", "encoding", "building"):
        assert (stages[name].done, stages[name].unit) == (1_010_328, "rows")
        print(f"{name}: {stages[name].seconds:.1f} s")
    with forebay.open(path) as store:
        table = store["flights"]
        first = [key for key, _ in table.scan(limit=2)]
        assert first[0].startswith("2013/01/01/") and first == sorted(first)
        assert table.verify().rows == 1_010_328
    found, partitions = skew(path, "flights")
    assert found < 1.15 and partitions == 8


@pytest.mark.parametrize(
    ("sampler", "arranged", "bound"),
    [
        ("interval", "sorted", 1.15),
        ("interval", "shuffled", 1.15),
        ("random", "sorted", 1.15),
        ("split", "shuffled", 1.15),
    ],
)
def test_samplers_balance_skewed_keys(spark, path, sampler, arranged, bound):
    """Nine of ten keys have the same prefix; even parts of the key space would not balance."""
    n = F.col("id")
    crowded = F.format_string("a/%08d", n)
    df = spark.range(0, 100_000, 1, 5)
    if arranged == "shuffled":
        df = df.select(((n * 31_337) % 100_000).alias("id"))
    df = df.select(F.when(n % 10 != 0, crowded).otherwise(F.md5(n.cast("string"))).alias("key"), n)
    forebay.spark.push(
        df, "t", key="{key}", order="ordered", partitions=8, sampler=sampler, store=path, seed=7
    )
    found, partitions = skew(path)
    assert found < bound and partitions == 8


@pytest.mark.parametrize("sampler", ["interval", "random"])
def test_spark_draws_as_the_samplers_do(spark, sampler):
    """The SQL draws like the Python code, with another random generator."""
    parts, rows = 200, 4_000
    weight, condition = _sampling.in_sql(sampler, 3, "n", "weight")
    df = spark.range(0, parts * rows, 1, parts)
    df = df.select((F.col("id") % rows).alias("n"), F.spark_partition_id().alias("part"))
    # All weights up to a million.
    powers = [(1 << bits) + more for bits in range(1, 29) for more in (-1, 0)]
    far = spark.createDataFrame([(n,) for n in powers], "n long").coalesce(1)
    for n, found in far.select("n", F.expr(weight)).collect():
        assert found == 1 << max(0, (n // 512).bit_length() - 1), n
    drawn = df.withColumn("weight", F.expr(weight)).filter(F.expr(condition)).toArrow()
    assert condition.count("xxhash64") == 1 and drawn.num_rows > 0
    for part in range(0, parts, 7):
        ours = drawn.filter(pc.equal(drawn["part"], part)).sort_by("n")
        batch = pa.record_batch({"n": range(rows)})
        ((wanted, weights),) = _sampling.chosen(sampler, part, 3, [batch])
        each = max(1 << (9 - (part // 64).bit_length()), 8)
        if sampler == "interval":
            assert ours["weight"].to_pylist() == weights
            starts = [n // k for n, k in zip(ours["n"].to_pylist(), weights, strict=True)]
            assert starts == [n // k for n, k in zip(wanted["n"].to_pylist(), weights, strict=True)]
        else:
            doublings = (rows // each).bit_length()
            assert abs(ours.num_rows - wanted.num_rows) < 8 * (each * doublings) ** 0.5
            weights_of = ours.to_pydict()
            for n, k in zip(weights_of["n"], weights_of["weight"], strict=True):
                assert k == 1 << max(0, (n // each).bit_length() - 1)


def test_the_number_of_partitions_follows_from_the_sample(spark, path):
    df = numbers(spark, 3000)
    for order in ("hashed", "ordered"):
        assert forebay.spark.push(df, order, key="{id}", order=order, store=path).rows == 3000
        assert len(manifest(path, order)["partitions"]) == 1


def test_a_data_frame_without_rows_or_with_empty_parts(spark, path):
    empty = numbers(spark, 10).limit(0)
    assert forebay.spark.push(empty, "none", key="{id}", partitions=3, store=path).rows == 0
    updates = []
    second = forebay.spark.push(empty, "none", key="{id}", store=path, progress=updates.append)
    assert second.version == 2 and updates[0].stage == "sampling"
    few = numbers(spark, 1000, parts=6).filter("half < 10")
    result = forebay.spark.push(few, "few", key="{id}", order="ordered", partitions=4, store=path)
    assert result.rows == 40
    one = spark.range(1)
    assert forebay.spark.push(one, "one", key="{id}", partitions=9, store=path).rows == 1
    with forebay.open(path) as store:
        assert store["one"][0] == {"id": 0} and store["few"].verify().rows == 40
        assert list(store["none"].scan()) == []


def test_rows_of_megabytes_among_short_ones(spark, path, tmp_path):
    """Long records are sent alone, short ones in chunks; few records are buffered."""
    n = F.col("id")
    long = F.repeat(F.md5(n.cast("string")), 60_000)
    df = spark.range(0, 4000, 1, 3).select(
        n, F.when(n % 400 == 7, long).otherwise(F.concat(F.lit("short "), n)).alias("text")
    )
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    given = {"key": "{id}", "order": "ordered", "boundaries": ["2", "35", "8"]}
    forebay.spark.push(df, "t", store=path, memory="8MiB", duplicates="last", **given)
    forebay.push(df.toArrow(), "t", store=tmp_path / "local", duplicates="last", **given)
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    # Four runs, each with a second file for long values.
    assert runs(path) == runs(tmp_path / "local") and len(runs(path)) == 8
    with forebay.open(path) as store:
        assert len(store["t"][407]["text"]) == 32 * 60_000


def test_more_partitions_than_a_task_holds_records_of(spark, path, tmp_path):
    """Chunks are small, and the version is the same."""
    df, given = numbers(spark, 30_000), {"key": "{id}", "partitions": 300}
    forebay.spark.push(df, "t", store=path, memory="2MiB", **given)
    forebay.push(df.toArrow(), "t", store=tmp_path / "local", **given)
    assert runs(path) == runs(tmp_path / "local") and len(runs(path)) == 300


def test_duplicates(spark, path, tmp_path):
    """The first of two rows is the same as in a local push in the same order."""
    n = F.col("id")
    df = spark.range(0, 6000, 1, 3).select((n % 2000).alias("id"), n.alias("n"))
    given = {"key": "{id}", "value": "n", "store": path}
    with pytest.raises(forebay.DataError, match=r"key \d+ occurs more than once") as raised:
        forebay.spark.push(df, "t", partitions=2, **given)
    assert "Traceback" not in str(raised.value) and raised.value.__cause__ is not None
    for choice, which in [("first", 0), ("last", 4000)]:
        result = forebay.spark.push(df, choice, duplicates=choice, partitions=2, **given)
        assert (result.rows, result.duplicates) == (2000, 4000)
        with forebay.open(path) as store:
            values = store[choice].get_many(range(2000))
        assert values == [str(which + id).encode() for id in range(2000)]


def test_bad_rows(spark, path):
    df = spark.createDataFrame([(1, "a"), (None, "b"), (3, "c")], "id int, s string").coalesce(1)
    with pytest.raises(forebay.DataError, match="row 2.*'id' is null") as raised:
        forebay.spark.push(df, "t", key="{id}", partitions=2, store=path)
    assert str(raised.value).endswith('leave such rows out by bad_rows="skip"')
    with forebay.open(path) as store:
        assert store.tables() == []
    result = forebay.spark.push(df, "t", key="{id}", bad_rows="skip", store=path)
    assert (result.rows, result.rejected) == (2, 1)
    with pytest.raises(forebay.UsageError, match="tasks are on several machines"):
        forebay.spark.push(df, "t", key="{id}", bad_rows="rejects.jsonl", store=path)  # pyright: ignore


def test_wrong_options_are_reported_before_anything_runs(spark, path):
    def never(batches):
        raise AssertionError("the data frame was computed")

    df = numbers(spark, 10).mapInArrow(never, "id long, name string, half double")

    def wrong(match, error=forebay.UsageError, **options):
        with pytest.raises(error, match=match):
            forebay.spark.push(df, "t", store=path, **{"key": "{id}", **options})

    wrong("invalid value 'sideways' for order", order="sideways")
    wrong("names the column 'nr', which the source does not have", forebay.DataError, key="{nr}")
    wrong("has to be one of interval, random, split", sampler="all")
    wrong("give partitions, or take another sampler", sampler="split", order="ordered")
    wrong("do not rise", forebay.Error, order="ordered", boundaries=["b", "a"])
    wrong("cannot be used with", boundaries=["b"], partitions=3)
    with pytest.raises(TypeError, match="no data frame of Spark 4.1 or later; forebay.push and"):
        forebay.spark.push(pa.table({"id": [1]}), "t", key="{id}", store=path)


def test_options_equal_those_of_a_local_push():
    apart = {"df", "sampler", "seed"}
    ours = inspect.signature(forebay.spark.push).parameters
    theirs = inspect.signature(forebay.push).parameters
    assert ours.keys() - apart <= theirs.keys()
    # These have no meaning in a cluster.
    left_out = {"data", "onto", "op", "format", "threads", "rate", "packet_data", "dry_run"}
    csv = {name for name in theirs if name.startswith("csv_")}
    assert theirs.keys() - ours.keys() == left_out | csv


def test_the_gate_holds_and_the_version_is_kept(spark, path):
    forebay.spark.push(numbers(spark, 1000), "t", key="{id}", partitions=2, store=path)
    with pytest.raises(forebay.GateHeld, match="rows>-20%") as held:
        forebay.spark.push(numbers(spark, 500), "t", key="{id}", partitions=2, store=path)
    assert held.value.result.version == 2 and not held.value.result.swapped
    with forebay.open(path) as store:
        assert [version.serving for version in store["t"].versions()] == [True, False]
        store["t"].swap(2)
    few = numbers(spark, 10)
    result = forebay.spark.push(few, "t", key="{id}", partitions=2, store=path, force=True)
    assert (result.version, result.swapped) == (3, True)


def test_another_push_is_refused_meanwhile(spark, path):
    """The push locks the table from beginning to end."""
    asked = []

    def meddle(progress):
        if not asked:
            asked.append(progress.stage)
            with pytest.raises(forebay.BusyError, match="another push to table t is under way"):
                forebay.push(pa.table({"id": [1]}), "t", key="{id}", store=path)

    df = numbers(spark, 1000)
    forebay.spark.push(df, "t", key="{id}", partitions=2, store=path, progress=meddle)
    assert asked == ["encoding"]


def test_a_swap_meanwhile_is_not_lost(spark, path):
    """A push holds its version if another client swaps meanwhile."""
    for rows in (1000, 10):
        forebay.push(numbers(spark, rows).toArrow(), "t", key="{id}", store=path, force=True)

    def swap(progress):
        if progress.stage == "encoding":
            with forebay.open(path) as store:
                if store["t"].version == 2:
                    store["t"].swap(1)

    df = numbers(spark, 900)
    words = "version 1 serves now, and version 2 did when this push began"
    with pytest.raises(forebay.GateHeld, match=words) as raised:
        forebay.spark.push(df, "t", key="{id}", partitions=2, store=path, progress=swap)
    assert raised.value.result.version == 3
    with forebay.open(path) as store:
        assert store["t"].version == 1
        assert store["t"].swap(3).previous == 1


def test_an_exception_in_the_progress_function_ends_the_push(spark, path):
    def refuse(progress):
        raise ZeroDivisionError("no more")

    def slow(batches):
        for batch in batches:
            time.sleep(30)
            yield batch

    df = spark.range(10).mapInArrow(slow, "id long")
    with pytest.raises(ZeroDivisionError, match="no more"):
        forebay.spark.push(df, "t", key="{id}", partitions=2, store=path, progress=refuse)
    with forebay.open(path) as store:
        assert store.tables() == []
    assert forebay.push(pa.table({"id": [1]}), "t", key="{id}", store=path).version == 1


def test_an_error_of_the_source_is_chained(spark, path):
    def fail(batches):
        raise RuntimeError("the database hung up")
        yield

    df = spark.range(10).mapInArrow(fail, "id long")
    words = "^Spark has given the push up: RuntimeError: the database hung up; nothing of it"
    with pytest.raises(forebay.Error, match=words) as raised:
        forebay.spark.push(df, "t", key="{id}", partitions=2, store=path)
    assert "the database hung up" in str(raised.value.__cause__)
    with forebay.open(path) as store:
        assert store.tables() == []


def test_a_task_that_fails_once_is_repeated(spark, path):
    def fail_once(batches):
        for number, batch in enumerate(batches):
            yield batch
            if number == 1 and TaskContext.get().attemptNumber() == 0:
                raise RuntimeError("once")

    df = numbers(spark, 50_000).mapInArrow(fail_once, "id long, name string, half double")
    df = df.select("id", "name")
    result = forebay.spark.push(df, "t", key="{id}", partitions=3, store=path)
    assert result.rows == 50_000
    assert len(runs(path)) == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda reports, others: reports[1:], "partition . has 0 reports instead of one"),
        (lambda reports, others: [*reports, reports[0]], "partition . has 2 reports instead of"),
        (lambda reports, others: [*reports[1:], others[0]], "it is one of version 1 of table u"),
        (lambda reports, others: [*reports[1:], "{}"], "report 3 of 3: "),
    ],
    ids=["lost", "doubled", "of another push", "nonsense"],
)
def test_reports_that_are_not_all_there_are_refused(spark, path, monkeypatch, change, words):
    df, real, others = numbers(spark, 1000), forebay.spark._Job.reports, []

    def changed(*arguments):
        reports = real(*arguments)
        if not others:
            others.extend(reports)
            return reports
        return change(reports, others)

    monkeypatch.setattr(forebay.spark._Job, "reports", changed)
    forebay.spark.push(df, "u", key="{id}", partitions=3, store=path)
    with pytest.raises(forebay.Error, match=f"{words}.*nothing of it is visible"):
        forebay.spark.push(df, "t", key="{id}", partitions=3, store=path)
    with forebay.open(path) as store:
        assert "t" not in store
    monkeypatch.undo()
    assert forebay.spark.push(df, "t", key="{id}", partitions=3, store=path).rows == 1000
    assert len(runs(path)) == 3, "runs of the push that was refused were left"


def test_lost_records_are_detected(spark, path, monkeypatch):
    """A shuffle that loses one record."""
    real = forebay.spark.encoded

    def lossy(source, batches, count):
        for batch in real(source, batches, count):
            chunks = batch["records"].to_pylist()
            if batch["sequence"][0].as_py() == 0:
                key, rest = struct.unpack_from("<HI", chunks[0])
                chunks[0] = chunks[0][6 + key + rest :]
            yield batch.set_column(1, "records", pa.array(chunks, pa.binary()))

    df = numbers(spark, 1000, parts=1)
    monkeypatch.setattr(forebay.spark, "encoded", lossy)
    with pytest.raises(forebay.Error, match="1000 records.* were sent to it, and 999 records"):
        forebay.spark.push(df, "t", key="{id}", partitions=1, store=path)
    with forebay.open(path) as store:
        assert store.tables() == []


INTERRUPTED = """
    import sys, time
    sys.path.insert(0, {tests!r})
    from spark_harness import COMMON, KINDS, JAVA
    from pyspark.sql import SparkSession
    import forebay.spark

    def slow(batches):
        for batch in batches:
            time.sleep(100)
            yield batch

    builder = SparkSession.builder
    for name, value in {{**COMMON, **KINDS["local"]}}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    df = spark.range(10).mapInArrow(slow, "id long")
    report = lambda progress: print(progress.stage, flush=True)
    forebay.spark.push(df, "t", key="{{id}}", partitions=2, store={path!r}, progress=report)
"""


def test_a_push_that_is_interrupted_leaves_nothing(path, birds, tmp_path):
    forebay.push(birds, "t", key="{id}", value="name", store=path)
    code = textwrap.dedent(INTERRUPTED.format(path=path, tests=str(Path(__file__).parent)))
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout.readline() == "encoding\n"
        with pytest.raises(forebay.BusyError):
            forebay.push(birds, "t", key="{id}", store=path)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=90)
    finally:
        process.kill()
        process.wait()
    assert errors.rstrip().endswith("KeyboardInterrupt"), errors
    with forebay.open(path) as store:
        assert store["t"][5] == b"bird 5" and len(store["t"].versions()) == 1
    assert forebay.push(birds, "t", key="{id}", value="name", store=path).version == 2


@pytest.mark.parametrize(
    "where", ["docs/how-to/push-from-spark.md", "python/examples/spark_push.py"]
)
def test_the_examples_hold(spark, path, tmp_path, monkeypatch, where):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["example", path])
    text = (ROOT / where).read_text()
    if where.endswith(".md"):
        (text,) = re.findall(r"```python\n(.*?)```", text, re.S)
    exec(compile(text, where, "exec"), {"__name__": "__main__"})
    made = "store" if where.endswith(".md") else path
    with forebay.open(made) as store:
        assert store.tables()


def test_the_message_of_java_is_the_cause():
    cause = "org.apache.spark.SparkException: [SPARK_JOB_CANCELLED] Job 3 cancelled"
    report = f"An error occurred while calling o288.collectToPython.\n: {cause}\n\tat org.apache"
    assert forebay.spark._cause(report) == cause
    assert forebay.spark._cause(f"{report}\nCaused by: java.io.IOException: full") == (
        "java.io.IOException: full"
    )


def test_errors_of_tasks_survive_any_report():
    reported = _tasks.TaskError(forebay.DataError('two\nlines, "quoted" {braces}: ä'))
    report = f"Job aborted\n  File x\nforebay._tasks.TaskError: {reported}\n\tat java.lang.Thread\n"
    error = _tasks.error_of(report)
    assert type(error) is forebay.DataError
    assert str(error) == 'two\nlines, "quoted" {braces}: ä'
    assert _tasks.error_of("nothing of ours") is None


def test_the_example_of_the_docstring_holds(spark, path):
    run_example(
        forebay.spark.push.__doc__, "push", {"forebay": forebay, "spark": spark, "store": path}
    )
