"""What the tasks of a push or a load from a cluster do: batches in, batches out.

The engine that runs them (Spark, Ray) sends the records from the ones to the others; see
`_forebay.DistributedPush` and `DistributedLoad` for the whole. These functions run in the engine's
workers, which have this package too.
"""

from __future__ import annotations

import functools
import importlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from . import _errors as errors  # pyright: ignore[reportPrivateUsage]
from ._forebay import PartWriter, TaskEncoder
from ._sampling import Sampler, chooser, sample, weigh

_P = ParamSpec("_P")
_T = TypeVar("_T")
Count = Callable[[int], object]


class TaskError(Exception):
    """An error of this package in a task, as one line that survives the engine's reports."""

    def __init__(self, error: errors.Error) -> None:
        super().__init__(json.dumps({"error": type(error).__name__, "message": str(error)}))


def error_of(report: str) -> errors.Error | None:
    """The first error of this package that an engine's report of a failure holds."""
    found = re.search(r"TaskError: (\{.*\})", report)
    if found is None:
        return None
    told = json.loads(found[1])
    return getattr(errors, told["error"])(told["message"])


def failure(engine: str, what: str, report: str, summary: str) -> errors.Error:
    """What an engine's failure of a push or a load means, in the words of this package."""
    told = error_of(report)
    if told is not None:
        return told
    return errors.Error(f"{engine} has given the {what} up: {summary}; nothing of it is visible")


def _telling(task: Callable[_P, Iterator[_T]]) -> Callable[_P, Iterator[_T]]:
    @functools.wraps(task)
    def told(*words: _P.args, **named: _P.kwargs) -> Iterator[_T]:
        try:
            yield from task(*words, **named)
        except errors.Error as error:
            raise TaskError(error) from error

    return told


@dataclass(frozen=True, slots=True)
class Source:
    """One part of what is pushed or loaded."""

    recipe: bytes
    number: int


def _with_rows(batches: Iterable[Any]) -> Iterator[Any]:
    """Those without rows may lack the columns."""
    return (batch for batch in batches if batch.num_rows > 0)


@_telling
def sampled(
    source: Source, sampler: Sampler, seed: int, batches: Iterable[Any], count: Count
) -> Iterator[Any]:
    """Samples of a part: `key`, and the `bytes` that each stands for.

    The last row has no key; its `rows` are those that were read.
    """
    pa: Any = importlib.import_module("pyarrow")
    encoder = TaskEncoder(source.recipe, source.number)
    choose = chooser(sampler, source.number, seed)
    held, rows = sample(_with_rows(batches), choose, lambda batch: encoder.sample(batch, 1))
    keys: list[bytes | None] = [] if held is None else held["key"].to_pylist()
    sizes: list[int] = [] if held is None else held["bytes"].to_pylist()
    weight = weigh(sampler, source.number, rows, len(keys))
    count(rows)
    yield pa.record_batch(
        {
            "key": pa.array([*keys, None], pa.binary()),
            "bytes": pa.array([*(round(weight * size) for size in sizes), 0], pa.int64()),
            "rows": pa.array([*([0] * len(keys)), rows], pa.int64()),
        }
    )


@_telling
def encoded(source: Source, batches: Iterable[Any], count: Count) -> Iterator[Any]:
    """The records of a part of the source, with their partitions, then the part's tallies."""
    encoder = TaskEncoder(source.recipe, source.number)
    for batch in _with_rows(batches):
        yield encoder.encode(batch)
        count(batch.num_rows)
    yield encoder.finish()


@_telling
def written(
    recipe: bytes, scratch_parent: str | None, batches: Iterable[Any], count: Count
) -> Iterator[str]:
    """Writes the partitions that come into the store, and gives their reports."""
    scratch = tempfile.mkdtemp(prefix="forebay-", dir=scratch_parent)
    try:
        writer = PartWriter(recipe, scratch)
        for batch in batches:
            writer.add(batch)
            # Rows without a key are the sources' tallies.
            count(batch.num_rows - batch.column("key").null_count)
        yield from writer.finish()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def of_no_rows(recipe: bytes) -> Iterator[str]:
    """The reports where the source has no parts at all."""

    def nobody(rows: int) -> None: ...

    return written(recipe, None, encoded(Source(recipe, 0), [], nobody), nobody)
