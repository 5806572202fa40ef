"""Data frames of Spark: `forebay.spark.push` publishes one, `forebay.spark.load` loads one.

The tasks of the cluster sort the rows and write the table's runs straight into the store; this
process, the driver, gets samples of the keys and one report for each partition. It checks that
together they are the whole data frame. Then it commits, or has a cluster of Forebay's add them to a
live table. See docs/how-to/push-from-spark.md.
"""

from __future__ import annotations

import importlib
import os
import re
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Unpack

from ._driving import check_sampler, drive, drive_load
from ._errors import Error, UsageError
from ._load import LoadResult
from ._options import ClusterOptions, TaskLoadOptions
from ._progress import Drawing, drawing
from ._push import PushResult
from ._sampling import Sampler, chosen, in_sql
from ._taking import takes
from ._tasks import Count, Source, encoded, failure, of_no_rows, sampled, with_rows, written
from ._watching import Stage, watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["load", "push"]

_SAMPLES = "key binary, bytes long"
_RECORDS = "partition int, records binary, source long, sequence long"
_REPORTS = "report string"


@takes(ClusterOptions)
def push(
    df: DataFrame,
    table: str,
    *,
    key: str,
    sampler: Sampler = "interval",
    seed: int = 0,
    **options: Unpack[ClusterOptions],
) -> PushResult:
    """Builds a version of a table from a data frame of Spark, by the tasks of its cluster.

    `df` is the data frame, `table` (str) the table's name, `key` (str) the template over columns
    that makes keys. The result is that of `forebay.push`, and so are the exceptions. `store` is a
    URL, or a directory that all machines of the cluster share; tasks find its credentials in their
    own environment. `memory` is of each task that writes.

    Where an ordered table is split into `partitions` is settled by a sample of the keys:
    with the `sampler` "interval" of every k-th row, with "random" of any (by `seed`, an int); both
    read the whole data frame once more than the push does. "split" reads the first rows of some
    parts of it, for data in no order. No sample is taken where `boundaries` are given, nor for a
    hashed table with `partitions`.

    The data frame has to be the same rows each time it is computed; where it is not, the push fails
    rather than mix them. Raises TypeError for what is no data frame of Spark 4.1 or later, and
    `UsageError` for one of Spark Connect.

    >>> people = spark.createDataFrame([(1, "Ada"), (2, "Bob")], "id int, name string")
    >>> forebay.spark.push(people, "people", key="{id}", partitions=2, store=store).rows
    2
    """
    _check(df)
    check_sampler(sampler)
    if sampler == "split" and options.get("partitions") is None:
        raise UsageError(
            "sampler='split' does not read all rows, so that their number is not known: give "
            "partitions, or take another sampler"
        )
    draws = drawing(options.pop("progress", None), table)
    job = _Job(df, draws, "push")
    return drive(job, table, {"key": key, **options}, "spark.DataFrame", sampler, seed, draws)


@takes(TaskLoadOptions)
def load(df: DataFrame, table: str, *, key: str, **options: Unpack[TaskLoadOptions]) -> LoadResult:
    """Loads a data frame of Spark into a live table of a cluster, by the tasks of Spark.

    `df` is the data frame, `table` (str) the table's name, `key` (str) the template over columns
    that makes keys. The result is that of `forebay.load`, and so are the exceptions. The tasks
    write a run for each partition that the table has, and stage it in `store`, the store of the
    cluster; when all are there and add up, its nodes fetch them, and each partition adds its own at
    one moment. `store` is a URL, or a directory that all machines share; tasks find its credentials
    in their own environment. `memory` is of each task that writes. Rows of one key are composed in
    the order of the data frame.

    Where a partition was split meanwhile the cluster refuses the load, and says so: give it again.
    `plan="auto"` has the partitions split and moved before, by a sample of the keys, for which the
    data frame is read once more.

    The data frame has to be the same rows each time it is computed; where it is not, the load fails
    rather than mix them. Raises TypeError and `UsageError` as `push` does.

    >>> counts = spark.createDataFrame([("a", 1), ("b", 2)], "page string, n long")
    >>> forebay.spark.load(counts, "clicks", key="{page}", as_="delta", store=store).rows
    2
    """
    _check(df)
    draws = drawing(options.pop("progress", None), table)
    return drive_load(_Job(df, draws, "load"), table, key, options, "spark.DataFrame", draws)


def _check(df: Any) -> None:
    if type(df).__module__.startswith("pyspark.sql.connect"):
        raise UsageError(
            "the data frame is one of Spark Connect, whose jobs cannot be watched and stopped from "
            "here: push or load from the driver of the cluster"
        )
    if not hasattr(df, "repartitionById"):
        raise TypeError(
            f"{type(df).__module__}.{type(df).__name__} is no data frame of Spark 4.1 or later; "
            "forebay.push and forebay.load take those of pandas and polars, and whatever else "
            "speaks Arrow"
        )


class _Job:
    """What Spark does for a push or a load."""

    def __init__(self, df: Any, draws: Drawing | None, what: str) -> None:
        self._df, self._draws, self._what = df, draws, what
        self.by_age = False
        self._context = df.sparkSession.sparkContext
        self._tag = f"forebay-{uuid.uuid4().hex}"
        self.schema: Any = df.limit(0).toArrow().schema
        self._rows: int | None = None
        """Of the data frame, once they have been counted."""

    def samples(self, recipe: bytes, sampler: Sampler, seed: int) -> tuple[Any, int]:
        """A sample of the keys, with what they stand for, and the number of rows read."""
        read, is_split = self._context.accumulator(0), sampler == "split"
        # Counting takes time, and is for those only who watch.
        counted = None if is_split or self._draws is None else _Counted(self._df)
        df = self._df if counted is None else counted.df

        def first(batches: Iterable[Any]) -> Iterator[Any]:
            source = Source(recipe, _part())
            rows = _counting(with_rows(batches), read.add)
            return sampled(source, chosen(sampler, source.number, seed, rows))

        def drawn(batches: Iterable[Any]) -> Iterator[Any]:
            return sampled(Source(recipe, _part()), _apart(with_rows(batches), read.add))

        def rows() -> int:
            return (counted and counted.rows) or read.value

        taken = df.mapInArrow(first, _SAMPLES) if is_split else _drawn(df, sampler, seed, drawn)
        with self._running(Stage("sampling", rows)):
            found: Any = taken.toArrow()
            self._rows = None if counted is None else counted.wait()
        return found, rows()

    def reports(self, recipe: bytes, partitions: int) -> list[str]:
        """The reports of all partitions, when the tasks have written them."""
        read, built = self._context.accumulator(0), self._context.accumulator(0)

        def encode(batches: Iterable[Any]) -> Iterator[Any]:
            return encoded(Source(recipe, _part()), batches, read.add)

        def write(batches: Iterable[Any]) -> Iterator[Any]:
            pa: Any = importlib.import_module("pyarrow")
            for report in written(recipe, _scratch(), batches, built.add):
                yield pa.record_batch({"report": [report]})

        records = self._df.mapInArrow(encode, _RECORDS)
        records = records.repartitionById(partitions, "partition")
        if self.by_age:
            # Which of two rows is the first is told by the places that they come from.
            records = records.sortWithinPartitions("source", "sequence")
        stages = (
            Stage("encoding", lambda: read.value, self._rows),
            Stage("building", lambda: built.value),
        )
        with self._running(*stages):
            found = records.mapInArrow(write, _REPORTS).collect()
        # A data frame that Spark knows to be empty has no tasks.
        return [row["report"] for row in found] or list(of_no_rows(recipe))

    @contextmanager
    def _running(self, *stages: Stage) -> Generator[None]:
        """An action, whose tasks are stopped when it fails."""
        context = self._context

        def cancel() -> None:
            context.cancelJobsWithTag(self._tag)

        context.addJobTag(self._tag)
        try:
            with watched(self._draws, stages, cancel):
                yield
        except BaseException as error:
            self._quietly(cancel)
            if _was_interrupted(error):
                raise KeyboardInterrupt from error
            reported = _told(error, self._what)
            if reported is None:
                raise
            raise reported from error
        finally:
            self._quietly(lambda: context.removeJobTag(self._tag))

    @staticmethod
    def _quietly(call: Callable[[], None]) -> None:
        """An interrupt may take the connection to Java with it. Its cause was reported."""
        java: Any = importlib.import_module("py4j.protocol")
        with suppress(java.Py4JError):
            call()


class _Counted:
    """A data frame whose rows are counted as they go by."""

    def __init__(self, df: Any) -> None:
        sql: Any = importlib.import_module("pyspark.sql")
        functions: Any = importlib.import_module("pyspark.sql.functions")
        self._seen = sql.Observation()
        self.df = df.observe(self._seen, functions.count(functions.lit(1)).alias("rows"))
        self.rows = 0
        """Once they have been counted."""

    def wait(self) -> int:
        self.rows = self._seen.get["rows"]
        return self.rows


_NUMBER, _WEIGHT = "forebay row number", "forebay weight"


def _drawn(df: Any, sampler: Sampler, seed: int, take: Callable[..., Any]) -> Any:
    """What `take` makes of the rows that are chosen, with their numbers and weights in the last two
    columns. The JVM draws them: what is not chosen is not handed to Python."""
    functions: Any = importlib.import_module("pyspark.sql.functions")
    weight, condition = in_sql(sampler, seed, f"`{_NUMBER}`", f"`{_WEIGHT}`")
    # The upper 31 bits are the number of the part.
    number = functions.monotonically_increasing_id().bitwiseAND((1 << 33) - 1)
    numbered = df.withColumn(_NUMBER, number).withColumn(_WEIGHT, functions.expr(weight))
    return numbered.filter(functions.expr(condition)).mapInArrow(take, _SAMPLES)


def _apart(batches: Iterable[Any], count: Count) -> Iterator[tuple[Any, list[int]]]:
    """Batches that were drawn without numbers and weights, and the weights."""
    seen = 0
    for batch in batches:
        columns = batch.num_columns - 2
        number, weight = batch.column(columns), batch.column(columns + 1)
        read = number[-1].as_py() + 1
        count(read - seen)
        seen = read
        yield batch.select(range(columns)), weight.to_pylist()


def _counting(batches: Iterable[Any], count: Count) -> Iterator[Any]:
    for batch in batches:
        count(batch.num_rows)
        yield batch


def _was_interrupted(error: BaseException | None) -> bool:
    """An interrupt within a call to Java may come out as an error of the connection."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _told(error: BaseException, what: str) -> Error | None:
    """What a failure of Spark means for a push or a load, in the words of this package."""
    errors: Any = importlib.import_module("pyspark.errors")
    java: Any = importlib.import_module("py4j.protocol")
    if not isinstance(error, errors.PySparkException | java.Py4JError):
        return None
    report = str(error)
    return failure("Spark", what, report, _cause(report))


_CALL = re.compile(r"An error occurred while calling \S+\s*: ")
"""What comes before an exception of Java's."""


def _cause(report: str) -> str:
    """What happened first, which reports tell last; of Python's own errors their last line."""
    first = _CALL.sub("", report.split("Caused by: ")[-1])
    lines = first.partition("Traceback (most recent call last):\n")[2] or first
    reported = (line for line in lines.splitlines() if line and not line[0].isspace())
    return next(reported, first).strip()


def _part() -> int:
    """The number of the partition that the task goes through."""
    spark: Any = importlib.import_module("pyspark")
    return spark.TaskContext.get().partitionId()


def _scratch() -> str | None:
    """One of the directories that Spark gives its tasks, and empties when an executor has ended."""
    directories = [name for name in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if name]
    return directories[_part() % len(directories)] if directories else None
