"""A session of Spark in a process of its own: `spark_session.py WORKERS SCRATCH`. Each line that comes in is a JSON object
with what to do, each is answered by a line of JSON behind an @; the first answer comes when all workers are there."""

import json
import os
import shutil
import sys
import time
import traceback
from pathlib import Path

import forebay.spark
import packets
import people
import redis
from pyspark.sql import SparkSession

#: What the tasks' processes need of this one's environment.
PASSED_ON = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP", "PYTHONPATH")
#: In which tasks get ready.
START_SECONDS = 3


def session(workers: int, scratch: str) -> SparkSession:
    """Each worker a JVM with one core and 1 GiB, and Python processes beside it."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local-cluster[{workers},1,1024]").appName("bench")
    settings = {
        "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false", "spark.local.dir": scratch, "spark.log.level": "ERROR",
        "spark.sql.files.maxPartitionBytes": "8m", "spark.sql.files.openCostInBytes": "64k",
        **{f"spark.executorEnv.{name}": os.environ[name] for name in PASSED_ON if name in os.environ},
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    end = time.monotonic() + 60
    # The driver is among them.
    while spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() < workers + 1:
        if time.monotonic() > end:
            raise TimeoutError("not all workers of Spark came")
        time.sleep(0.1)
    return spark


#: How a push and Spark alone sort the rows of a file.
SETS = {
    "packets": ({"key": packets.TABLE_KEY, "value": "value"}, ["time_us", "packet"]),
    "people": ({"key": people.TABLE_KEY}, ["id"]),
}


def processor_seconds() -> float:
    """What this process and all below it have used, those that ended among them: the driver, its JVM, the executors and
    their Python processes."""
    used, below = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        process = int(stat.parent.name)
        used[process] = sum(map(int, words[11:15]))
        below.setdefault(int(words[1]), []).append(process)
    found, total = [os.getpid()], 0
    while found:
        process = found.pop()
        found += below.get(process, [])
        total += used.get(process, 0)
    return total / os.sysconf("SC_CLK_TCK")


def puts(spark: SparkSession, file: str, tasks: int, port: int, at_once: int, seconds: float) -> dict:
    """Tasks that put, all from the same moment on."""
    start_at = time.monotonic() + START_SECONDS

    def put(batches):
        import pyarrow
        import puts as by_client

        yield pyarrow.RecordBatch.from_pylist([{"result": json.dumps(by_client.put(batches, port, at_once, seconds, start_at))}])

    frame = spark.read.parquet(file).coalesce(tasks)
    found = [json.loads(row.result) for row in frame.mapInArrow(put, "result string").collect()]
    span = max(task["ended"] for task in found) - min(task["began"] for task in found)
    return {
        "tasks": sum(task["done"] > 0 for task in found), "done": sum(task["done"] for task in found), "seconds": span,
        "some": [packet for task in found for packet in task["some"]],
    }


def push(
    spark: SparkSession, file: str, store: str, work_dir: str, rows: str = "packets", port: int = 0, key: str = "", value: str = ""
) -> dict:
    """A push, and, when a port is given, how long it was until the node there had that value."""
    start, before = time.monotonic(), processor_seconds()
    options = {"store": store, "work_dir": work_dir, "order": "ordered", "force": True, **SETS[rows][0]}
    done = forebay.spark.push(spark.read.parquet(file), rows, **options)
    result = {
        "seconds": time.monotonic() - start, "cpu_seconds": processor_seconds() - before, "rows": done.rows, "bytes": done.bytes,
        "swapped": done.swapped,
    }
    if port:
        client = redis.Redis(port=port)
        while client.get(f"packets:{key}") != value.encode():
            if time.monotonic() - start > 300:
                raise TimeoutError(f"the node did not get {key}")
            time.sleep(0.02)
        result["served_seconds"] = time.monotonic() - start
    else:
        os.sync()
        result["synced_seconds"] = time.monotonic() - start
    return result


def parquet(spark: SparkSession, file: str, to: str, partitions: int, rows: str) -> dict:
    """Sorted Parquet, of all columns."""
    shutil.rmtree(to, ignore_errors=True)
    start, before = time.monotonic(), processor_seconds()
    by = SETS[rows][1]
    frame = spark.read.parquet(file).repartitionByRange(partitions, *by)
    frame.sortWithinPartitions(*by).write.parquet(f"file://{to}")
    result = {"seconds": time.monotonic() - start, "cpu_seconds": processor_seconds() - before}
    os.sync()
    return {**result, "synced_seconds": time.monotonic() - start}


WORK = {"puts": puts, "push": push, "parquet": parquet}


def main() -> None:
    spark = session(int(sys.argv[1]), sys.argv[2])
    answer({})
    for line in sys.stdin:
        words = json.loads(line)
        try:
            answer(WORK[words.pop("do")](spark, **words))
        except Exception as error:  # noqa: BLE001 - told to who asked
            traceback.print_exc()
            answer({"error": f"{type(error).__name__}: {error}"[:500]})
    spark.stop()


def answer(result: dict) -> None:
    print("@" + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
