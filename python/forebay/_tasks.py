"""What the tasks of a push or a load from a cluster do: batches in, batches out.

The engine that runs them (Spark, Ray) sends the records from the ones to the others; see
`_forebay.DistributedPush` and `DistributedLoad` for the whole. These functions run in the engine's
workers, which have this package too.
"""

from __future__ import annotations

import functools
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from . import _errors as errors  # pyright: ignore[reportPrivateUsage]
from ._forebay import PartWriter, TaskEncoder

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
    reported = json.loads(found[1])
    return getattr(errors, reported["error"])(reported["message"])


def failure(engine: str, what: str, report: str, summary: str) -> errors.Error:
    """What an engine's failure of a push or a load means, in the words of this package."""
    reported = error_of(report)
    if reported is not None:
        return reported
    return errors.Error(f"{engine} has given the {what} up: {summary}; nothing of it is visible")


def _telling(task: Callable[_P, Iterator[_T]]) -> Callable[_P, Iterator[_T]]:
    @functools.wraps(task)
    def reported(*words: _P.args, **named: _P.kwargs) -> Iterator[_T]:
        try:
            yield from task(*words, **named)
        except errors.Error as error:
            raise TaskError(error) from error

    return reported


@dataclass(frozen=True, slots=True)
class Source:
    """One part of what is pushed or loaded."""

    recipe: bytes
    number: int


def with_rows(batches: Iterable[Any]) -> Iterator[Any]:
    """Those without rows may lack the columns."""
    return (batch for batch in batches if batch.num_rows > 0)


@_telling
def sampled(source: Source, chosen: Iterable[tuple[Any, list[int]]]) -> Iterator[Any]:
    """Samples of a part: `key`, and the `bytes` that each stands for. `chosen` are rows, and how
    many rows each of them stands for."""
    encoder = TaskEncoder(source.recipe, source.number)
    for batch, weights in chosen:
        yield encoder.sample(batch, weights)


@_telling
def encoded(source: Source, batches: Iterable[Any], count: Count) -> Iterator[Any]:
    """The records of a part of the source in bunches, each with its partition, then the part's
    tallies."""
    encoder = TaskEncoder(source.recipe, source.number)
    for batch in with_rows(batches):
        yield from encoder.encode(batch)
        count(batch.num_rows)
    yield from encoder.finish()


@_telling
def written(
    recipe: bytes, scratch_parent: str | None, batches: Iterable[Any], count: Count
) -> Iterator[str]:
    """Writes the partitions that come into the store, and gives their reports."""
    scratch = tempfile.mkdtemp(prefix="forebay-", dir=scratch_parent)
    try:
        writer = PartWriter(recipe, scratch)
        for batch in batches:
            count(writer.add(batch))
        yield from writer.finish()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def of_no_rows(recipe: bytes) -> Iterator[str]:
    """The reports where the source has no parts at all."""

    def nobody(rows: int) -> None: ...

    return written(recipe, None, encoded(Source(recipe, 0), [], nobody), nobody)
