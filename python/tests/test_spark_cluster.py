"""forebay.spark.push with separate executors that die or are slow, or with a faulty store."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from object_store import BUCKET, Proxy, access
from pyspark import TaskContext
from pyspark.sql import functions as F
from spark_harness import Meanwhile, executors, kill, runs

import forebay
import forebay.spark

SCHEMA = "id long, name string"
ROWS = 60_000


def rows(spark, function=None, parts=4, count=ROWS):
    """Returns rows of an id and a text; the source applies `function` to each batch."""
    n = F.col("id")
    df = spark.range(0, count, 1, parts).select(n, F.concat(F.lit("name "), n).alias("name"))

    def source(batches):
        for batch in batches:
            yield function(batch)

    return df if function is None else df.mapInArrow(source, SCHEMA)


def check(store, table="t", count=ROWS, partitions=6):
    """Checks that the version is whole and that no other files exist."""
    with forebay.open(store) as opened:
        assert opened[table].verify().rows == count
        assert opened[table][41] == {"id": 41, "name": "name 41"}
    if "://" not in str(store):
        assert len(runs(store, table)) == partitions


def written(path, table="t"):
    """Returns the number of runs in the store."""
    folder = Path(path, "tables", table, "runs")
    return len([name for name in folder.glob("*.run")])


class Remote:
    """A store in the bucket that the driver and tasks of a session use through a proxy."""

    def __init__(self, server, session, name, monkeypatch, work):
        self.server, self.proxy, self.prefix = server, Proxy(server), f"spark/{name}"
        self.url = f"s3://{BUCKET}/{self.prefix}"
        monkeypatch.setenv("FOREBAY_WORK_DIR", str(work))
        for name, value in access(self.proxy.url).items():
            monkeypatch.setenv(name, value)
            monkeypatch.setitem(session.sparkContext.environment, name, value)

    def objects(self, table="t"):
        client = self.server.client()
        prefix = f"{self.prefix}/tables/{table}/"
        found = client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
        return [entry["Key"].removeprefix(prefix) for entry in found]

    def runs(self, table="t"):
        return [name for name in self.objects(table) if name.startswith("runs/")]

    def uploads(self):
        found = self.server.client().list_multipart_uploads(Bucket=BUCKET, Prefix=self.prefix)
        return [entry["Key"] for entry in found.get("Uploads", [])]


@pytest.fixture
def remote(s3_server, tmp_path, monkeypatch):
    made = []

    def make(session):
        made.append(Remote(s3_server, session, tmp_path.name, monkeypatch, tmp_path / "work"))
        return made[-1]

    yield make
    for each in made:
        each.proxy.stop()


def is_run(exchange):
    return exchange.method == "PUT" and ".run" in exchange.path


def is_pointer(exchange):
    return exchange.method == "PUT" and exchange.path.partition("?")[0].endswith("/current")


def test_a_store_that_is_slow_and_answers_5xx(sparks, remote):
    spark = sparks.get("local")
    store, seen = remote(spark), []

    def trouble(exchange):
        seen.append(exchange)
        time.sleep([0, 0.02, 0.1][len(seen) % 3])
        return 503 if len(seen) % 7 == 0 else None

    store.proxy.before = trouble
    result = forebay.spark.push(rows(spark), "t", key="{id}", partitions=4, store=store.url)
    assert result.rows == ROWS and len([e for e in seen if e.status == 503]) > 3
    store.proxy.before = lambda exchange: None
    check(store.url)
    assert len(store.runs()) == 4


def test_a_store_that_is_unavailable_for_some_seconds(sparks, remote):
    spark = sparks.get("local")
    store, began = remote(spark), []

    def away(exchange):
        if is_run(exchange) and not began:
            began.append(time.monotonic())
        return 503 if began and time.monotonic() < began[0] + 3 else None

    store.proxy.before = away
    forebay.spark.push(rows(spark), "t", key="{id}", partitions=4, store=store.url)
    assert began
    check(store.url)


def test_a_store_that_refuses_runs(sparks, remote):
    spark = sparks.get("local")
    store = remote(spark)
    store.proxy.before = lambda exchange: 403 if is_run(exchange) else None
    with pytest.raises(forebay.Error, match="(?s)403|denied|Forbidden|permission") as raised:
        forebay.spark.push(rows(spark), "t", key="{id}", partitions=4, store=store.url)
    assert "Traceback" not in str(raised.value)
    assert store.runs() == [] and store.uploads() == []
    store.proxy.before = lambda exchange: None
    forebay.spark.push(rows(spark), "t", key="{id}", partitions=4, store=store.url)
    check(store.url)


def test_a_pointer_that_another_client_changed(sparks, remote):
    spark = sparks.get("local")
    store = remote(spark)
    few = rows(spark, count=1000)
    for _ in range(2):
        forebay.spark.push(few, "t", key="{id}", partitions=2, store=store.url)
    client, name = store.server.client(), f"{store.prefix}/tables/t/current"
    kept = client.get_object(Bucket=BUCKET, Key=name)["Body"].read()

    def meddle(exchange):
        if is_pointer(exchange):
            client.put_object(Bucket=BUCKET, Key=name, Body=kept + b"x")

    store.proxy.before = meddle
    with pytest.raises(forebay.Error, match="somebody else changed it"):
        forebay.spark.push(few, "t", key="{id}", partitions=2, store=store.url)
    found = client.get_object(Bucket=BUCKET, Key=name)["Body"].read()
    assert found == kept + b"x", "the other client's pointer was overwritten"


def test_executors_push_into_object_storage(sparks, remote):
    """The executors share only their environment and the network."""
    spark = sparks.get("cluster")
    store = remote(spark)
    df = rows(spark)
    result = forebay.spark.push(
        df, "t", key="{id}", order="ordered", partitions=6, store=store.url, sampler="random"
    )
    assert result.rows == ROWS and result.swapped
    check(store.url)
    assert len(store.runs()) == 6 and store.uploads() == []
    assert len(executors()) == 2


def test_an_executor_is_killed_while_it_reads(sparks, path):
    spark = sparks.get("cluster")

    def kill_once(batch):
        context = TaskContext.get()
        if context.partitionId() == 1 and context.attemptNumber() == 0:
            with open(f"/proc/{os.getppid()}/stat") as stat:
                executor = int(stat.read().rpartition(")")[2].split()[1])
            os.kill(executor, signal.SIGKILL)
            time.sleep(60)
        return batch

    df = rows(spark, kill_once)
    forebay.spark.push(df, "t", key="{id}", partitions=6, store=path)
    check(path)


def test_an_executor_is_killed_while_it_writes(sparks, path):
    """Its encoded records are lost and must be encoded again."""
    spark = sparks.get("cluster")
    df = rows(spark, count=400_000)
    with Meanwhile(lambda: written(path) >= 2, lambda: kill(executors()[0])):
        forebay.spark.push(df, "t", key="{id}", partitions=6, store=path)
    check(path, count=400_000)


def test_rows_that_differ_each_time_make_no_mixed_version(sparks, path):
    """An executor dies when some partitions are written, and its rows differ in the repeat."""
    spark = sparks.get("cluster")
    before = forebay.spark.push(rows(spark), "t", key="{id}", partitions=6, store=path)

    def other_each_time(batch):
        import pyarrow as pa

        drawn = [os.urandom(8).hex() for _ in range(batch.num_rows)]
        return pa.record_batch({"id": batch["id"], "name": drawn})

    df = rows(spark, other_each_time, count=400_000)
    # Spark's own check is switched off.
    kinds = ("enabled", "enableFullRetryOnMismatch", "enableQueryLevelRollbackOnMismatch")
    watches = [f"spark.sql.shuffle.orderIndependentChecksum.{kind}" for kind in kinds]
    for name in watches:
        spark.conf.set(name, "false")
    there = written(path)
    with Meanwhile(lambda: written(path) >= there + 2, lambda: kill(executors()[0])):
        with pytest.raises(forebay.Error, match="same each time"):
            forebay.spark.push(df, "t", key="{id}", partitions=6, store=path, force=True)
    for name in watches:
        spark.conf.unset(name)
    with forebay.open(path) as store:
        assert store["t"].version == before.version and len(store["t"].versions()) == 1
    check(path)


def test_a_slow_task_runs_twice(sparks, path, tmp_path):
    """The second attempt starts while the first one sleeps; its records count."""
    spark, notes = sparks.get("standalone"), str(tmp_path / "notes")
    os.mkdir(notes)

    def sleep_once(batch):
        context = TaskContext.get()
        if context.partitionId() == 3:
            open(f"{notes}/attempt {context.attemptNumber()}", "w").close()
            if context.attemptNumber() == 0:
                time.sleep(300)
                open(f"{notes}/slept", "w").close()
        return batch

    forebay.spark.push(rows(spark, sleep_once), "t", key="{id}", partitions=6, store=path)
    check(path)
    assert sorted(os.listdir(notes)) == ["attempt 0", "attempt 1"]


def test_two_tasks_write_one_partition(sparks, remote):
    """Both runs are uploaded; the version names one, and the other is removed."""
    spark = sparks.get("standalone")
    store, held, again = remote(spark), [], threading.Event()

    def hold_first(exchange):
        """Waits until the other task of the partition also uploads a run."""
        if is_run(exchange):
            partition = exchange.path.rpartition("/")[2].split("-")[1]
            if not held:
                held.append(partition)
                again.wait(90)
            elif partition == held[0]:
                again.set()

    store.proxy.before = hold_first
    df = rows(spark, parts=2)
    forebay.spark.push(df, "t", key="{id}", partitions=6, store=store.url)
    sent = {e.path.partition("?")[0] for e in store.proxy.exchanges if is_run(e)}
    assert len(sent) > 6, "no task ran twice"
    check(store.url)
    forebay.spark.push(df, "t", key="{id}", partitions=6, store=store.url)
    assert len(store.runs()) == 12, "the next push removes runs that no version names"


def test_a_worker_is_killed(sparks, path):
    """A standalone cluster loses one of its two machines permanently."""
    spark = sparks.get("standalone")
    worker = sparks.standalone.workers[0]
    df = rows(spark, count=400_000)
    with Meanwhile(lambda: written(path) >= 1, lambda: kill(worker.pid)):
        forebay.spark.push(
            df, "t", key="{id}", order="ordered", partitions=6, store=path, duplicates="first"
        )
    assert worker.wait(90) == -signal.SIGKILL
    check(path, count=400_000)
