"""forebay.spark.load into live tables of a cluster of three nodes."""

import inspect
import os
import threading
import time

import pyarrow as pa
import pytest
from live_cluster import PARTED, ROW
from pyspark import TaskContext
from pyspark.sql import functions as F
from spark_harness import Meanwhile, executors, kill

import forebay
import forebay.spark
from examples import run_example

SCHEMA = "id long, name string, half double"


@pytest.fixture
def spark(sparks):
    return sparks.get("local")


def numbers(spark, first, last, word="name", parts=4):
    """Returns rows of a number, a text and another number."""
    n = F.col("id")
    return spark.range(first, last, 1, parts).select(
        n, F.concat(F.lit(f"{word} "), n).alias("name"), (n / 4).alias("half")
    )


def wanted(first, last, word="name"):
    return {
        f"k{id:06}": {"id": id, "name": f"{word} {id}", "half": id / 4} for id in range(first, last)
    }


def load(cluster, df, table, key="k{id:06}", **options):
    result = forebay.spark.load(df, table, key=key, store=cluster.path, **options)
    assert cluster.staged(table) == []
    return result


@pytest.mark.parametrize("order", ["hashed", "ordered"])
def test_a_data_frame_is_loaded_whole_into_an_empty_and_a_filled_table(spark, live_cluster, order):
    table = live_cluster.create(f"whole_{order}", *ROW, *PARTED[order])
    df = numbers(spark, 0, 20_000)
    result = load(live_cluster, df, table)
    assert (result.rows, result.applied.updates, result.rejected) == (20_000, 20_000, 0)
    assert (result.table, result.duplicates) == (table, 0)
    held = wanted(0, 20_000)
    assert live_cluster.all_of(table) == held
    # The same load again changes nothing.
    assert load(live_cluster, df, table).rows == 20_000
    assert live_cluster.all_of(table) == held
    # Another load replaces loaded rows and leaves the writes of clients.
    written = {"id": 7, "name": "by a client", "half": None}
    with live_cluster.nodes[0].through_gateway() as client:
        for name in ("k000007", "another"):
            client.delete(f"{table}:{name}")
            client.hset(f"{table}:{name}", mapping={"id": 7, "name": "by a client"})
        client.delete(f"{table}:k000008")
    load(live_cluster, numbers(spark, 8, 9), table)
    load(live_cluster, numbers(spark, 15_000, 25_000, "new"), table)
    held |= {"k000007": written, "another": written} | wanted(15_000, 25_000, "new")
    assert live_cluster.all_of(table) == held


def test_rows_of_one_key_are_composed_in_the_order_of_the_data_frame(spark, live_cluster):
    """Every operation runs many times on few keys, some of which the table has."""
    table = live_cluster.create("operations", "--delta", "append", *PARTED["hashed"])
    held = {f"k{key}": b"old " for key in range(0, 60, 2)}
    with live_cluster.connect() as connection:
        connection[table].put_many(held)
    verbs = ["update", "insert", "delta", "delete"]
    rows = [(f"k{row * 7919 % 50}", f"{row} ", verbs[row * row % 101 % 4]) for row in range(4000)]
    # Several parts, so that their positions decide the order.
    parted = spark.sparkContext.parallelize(rows, 4)
    df = spark.createDataFrame(parted, "k string, v string, op string")
    for key, text, op in rows:
        value = text.encode()
        if op == "update" or op == "insert" and key not in held:
            held[key] = value
        elif op == "delta":
            held[key] = held.get(key, b"") + value
        elif op == "delete":
            held.pop(key, None)
    result = load(live_cluster, df, table, key="{k}", op="op")
    assert (result.rows, result.duplicates) == (50, 3950)
    assert live_cluster.all_of(table) == held
    first = spark.createDataFrame([("k1", "first"), ("k1", "second")], "k string, v string")
    load(live_cluster, first.coalesce(1), table, key="{k}", duplicates="first")
    assert live_cluster.all_of(table)["k1"] == b"first"
    inserts = spark.createDataFrame([("k1", "no"), ("k99", "yes")], "k string, v string")
    load(live_cluster, inserts, table, key="{k}", as_="insert")
    held |= {"k1": b"first", "k99": b"yes"}
    assert live_cluster.all_of(table) == held
    assert load(live_cluster, inserts.where("false"), table, key="{k}").rows == 0
    with pytest.raises(forebay.DataError, match="more than once"):
        load(live_cluster, first, table, key="{k}", duplicates="fail")
    assert live_cluster.all_of(table) == held


def sums(spark, function=None, count=40_000):
    """Returns rows that add one to each of a hundred keys; the source applies `function`."""
    df = spark.range(0, count, 1, 4).select((F.col("id") % 100).alias("id"), F.lit(1).alias("n"))

    def source(batches):
        for batch in batches:
            yield function(batch)

    return df if function is None else df.mapInArrow(source, "id long, n int")


def check_sums(cluster, table, each):
    assert cluster.all_of(table) == {f"k{id:02}": each for id in range(100)}
    assert cluster.staged(table) == []


def test_deltas_are_added_once_though_a_task_fails_and_is_repeated(spark, live_cluster):
    table = live_cluster.create("retried", "--delta", "i64", *PARTED["hashed"])

    def fail_once(batch):
        context = TaskContext.get()
        if context.partitionId() == 2 and context.attemptNumber() == 0:
            raise RuntimeError("this attempt fails")
        return batch

    for round in (1, 2):
        result = load(live_cluster, sums(spark, fail_once), table, key="k{id:02}", as_="delta")
        assert (result.rows, result.applied.deltas, result.duplicates) == (100, 100, 39_900)
        check_sums(live_cluster, table, 400 * round)


def test_a_partition_that_is_split_meanwhile_refuses_the_load_and_a_repeat_succeeds(
    spark, live_cluster, monkeypatch
):
    table = live_cluster.create("cut", *ROW, *PARTED["ordered"])
    load(live_cluster, numbers(spark, 0, 3000), table)
    real = forebay.spark._Job.reports

    def split_then(*words):
        reports = real(*words)
        live_cluster.split(table, "k002000")
        return reports

    monkeypatch.setattr(forebay.spark._Job, "reports", split_then)
    with pytest.raises(forebay.Error, match="was split while the load was built: load again"):
        load(live_cluster, numbers(spark, 0, 3000, "new"), table)
    assert live_cluster.staged(table) == []
    assert live_cluster.all_of(table) == wanted(0, 3000)
    monkeypatch.undo()
    load(live_cluster, numbers(spark, 0, 3000, "new"), table)
    assert live_cluster.all_of(table) == wanted(0, 3000, "new")


def test_partitions_are_split_by_a_sample_before_the_load(spark, live_cluster):
    table = live_cluster.create("planned", *ROW, "--order", "ordered", replicas=1)
    result = load(
        live_cluster, numbers(spark, 0, 30_000), table, plan="always", partition_bytes="200K"
    )
    assert result.rows == 30_000
    assert live_cluster.all_of(table) == wanted(0, 30_000)
    live = live_cluster.ask_coordinator()["live"]["tables"][table]
    assert live["partitions"] > 1, live
    with pytest.raises(forebay.UsageError, match='goes with plan="auto"'):
        load(live_cluster, numbers(spark, 0, 10), table, partition_bytes="200K")


def test_wrong_options_are_reported_before_anything_runs(spark, live_cluster, path):
    table = live_cluster.create("wrong", *ROW, *PARTED["ordered"])
    live_cluster.create("forever", "--ttl", "never")

    def never(batches):
        raise AssertionError("the data frame was computed")

    df = numbers(spark, 0, 10).mapInArrow(never, SCHEMA)

    def wrong(match, error=forebay.UsageError, df=df, table=table, **options):
        with pytest.raises(error, match=match):
            forebay.spark.load(
                df, table, **{"key": "k{id:06}", "store": live_cluster.path, **options}
            )
        assert live_cluster.staged(table) == []

    wrong("not a live table of a cluster at .*: tasks build versions", table="none")
    forebay.spark.push(numbers(spark, 0, 10), "batch", key="{id}", store=live_cluster.path)
    wrong("batch is not a live table of a cluster.*forebay.spark.push", table="batch")
    with forebay.open(path, create=True) as store:
        store.create("t", durability="100ms")
    wrong("t is not a live table of a cluster.*forebay.load", table="t", store=path)
    wrong("'nr', which the source", forebay.Error, key="{nr}")
    wrong("the sources have the column 'more'", df=df.withColumn("more", F.lit(1)))
    wrong("it was made without expiry", table="forever", value="name", ttl="1h")
    wrong("made without delta", as_="delta")
    wrong("invalid value 'sideways' for as_", as_="sideways")
    wrong("tasks are on several machines", bad_rows="rejects.jsonl")
    wrong("unexpected keyword argument 'partitions'", TypeError, partitions=3)
    wrong("unexpected keyword argument 'sampler'", TypeError, sampler="split")
    wrong("no data frame of Spark", TypeError, df=pa.table({"id": [1]}))
    assert live_cluster.all_of(table) == {}


def test_options_equal_those_of_a_local_load():
    ours = inspect.signature(forebay.spark.load).parameters
    theirs = inspect.signature(forebay.load).parameters
    assert ours.keys() - {"df"} <= theirs.keys()
    left_out = {"data", "format", "threads", "rate", "packet_data"}
    assert left_out <= theirs.keys() - ours.keys()
    assert {"key", "op", "as_", "duplicates", "ttl", "plan", "deadline"} <= ours.keys()


def test_bad_rows_end_the_load_or_are_counted(spark, live_cluster):
    table = live_cluster.create("bad", *ROW, *PARTED["hashed"])
    rows = [(1, "a", 0.25), (None, "b", 0.5), (3, "c", 0.75)]
    df = spark.createDataFrame(rows, SCHEMA)
    with pytest.raises(forebay.DataError, match="'id' is null|null"):
        load(live_cluster, df, table)
    assert live_cluster.all_of(table) == {} and live_cluster.staged(table) == []
    result = load(live_cluster, df, table, bad_rows="skip")
    assert (result.rows, result.rejected) == (2, 1)
    assert sorted(live_cluster.all_of(table)) == ["k000001", "k000003"]


def test_a_second_load_waits_for_the_first_and_files_of_a_dead_one_are_removed(spark, live_cluster):
    table = live_cluster.create("busy", *ROW, *PARTED["hashed"])
    begun, go = threading.Event(), threading.Event()
    real = forebay.spark._Job.reports

    def held(*words):
        begun.set()
        assert go.wait(90)
        return real(*words)

    def loading(*which):
        options = {"key": "k{id:06}", "store": live_cluster.path}
        given = (numbers(spark, 0, *which), table)
        thread = threading.Thread(target=forebay.spark.load, args=given, kwargs=options)
        thread.start()
        return thread

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forebay.spark._Job, "reports", held)
        first = loading(1000)
        assert begun.wait(90)
        second = loading(10, "second")
        go.set()
        first.join(90)
        second.join(90)
    assert live_cluster.all_of(table) == wanted(0, 1000) | wanted(0, 10, "second")
    # A task leaves such a file if its driver died.
    left = os.path.join(live_cluster.path, "tables", table, "runs", "load-00001-left.run")
    open(left, "w").close()
    load(live_cluster, numbers(spark, 0, 10, "third"), table)
    assert live_cluster.all_of(table) == wanted(0, 1000) | wanted(0, 10, "third")


def test_progress_is_reported_and_its_exception_ends_the_load(spark, live_cluster):
    table = live_cluster.create("reported", *ROW, *PARTED["hashed"])
    stages = []
    df = numbers(spark, 0, 2000)
    load(live_cluster, df, table, progress=lambda now: stages.append(now.stage))
    assert stages.index("encoding") < stages.index("building")

    def stop(now):
        if now.stage == "building":
            raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        load(live_cluster, numbers(spark, 0, 2000, "new"), table, progress=stop)
    assert live_cluster.all_of(table) == wanted(0, 2000)

    def leaves_nothing():
        # A task may write its file while it is stopped; the next load removes it.
        load(live_cluster, numbers(spark, 0, 10), table)
        return live_cluster.staged(table) == []

    assert any(leaves_nothing() for _ in range(10))


def test_an_executor_is_killed_while_it_writes(sparks, live_cluster):
    """Its encoded records are lost and must be encoded again."""
    spark = sparks.get("cluster")
    table = live_cluster.create("killed", "--delta", "i64", "--partitions", "6")
    is_writing = lambda: len(live_cluster.staged(table)) >= 2  # noqa: E731
    with Meanwhile(is_writing, lambda: kill(executors()[0])):
        load(live_cluster, sums(spark, count=2_000_000), table, key="k{id:02}", as_="delta")
    check_sums(live_cluster, table, 20_000)


def test_a_slow_task_runs_twice(sparks, live_cluster, tmp_path):
    """The second attempt starts while the first one sleeps; its records count."""
    spark, notes = sparks.get("standalone"), str(tmp_path / "notes")
    os.mkdir(notes)
    table = live_cluster.create("twice", "--delta", "i64", *PARTED["hashed"])

    def sleep_once(batch):
        context = TaskContext.get()
        if context.partitionId() == 3:
            open(f"{notes}/attempt {context.attemptNumber()}", "w").close()
            if context.attemptNumber() == 0:
                time.sleep(300)
                open(f"{notes}/slept", "w").close()
        return batch

    load(live_cluster, sums(spark, sleep_once), table, key="k{id:02}", as_="delta")
    check_sums(live_cluster, table, 400)
    assert sorted(os.listdir(notes)) == ["attempt 0", "attempt 1"]


def test_the_example_of_the_docstring_holds(spark, live_cluster):
    live_cluster.create("clicks", "--delta", "i64", *PARTED["hashed"])
    names = {"forebay": forebay, "spark": spark, "store": live_cluster.path}
    run_example(forebay.spark.load.__doc__, "load", names)
