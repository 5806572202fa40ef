"""What the driver of a push or a load does, whichever engine runs the tasks (see `_tasks`)."""

from __future__ import annotations

from typing import Any, Protocol

from ._command import boundaries_word, words
from ._errors import UsageError
from ._forebay import DistributedLoad, DistributedPush, not_stored
from ._load import LoadResult, log_messages
from ._load import outcome as load_outcome
from ._options import PushOptions, TaskLoadOptions
from ._progress import Drawing
from ._push import PushResult, outcome
from ._sampling import SAMPLERS, Sampler


class Job(Protocol):
    """What an engine does for a push or a load."""

    schema: Any
    by_age: bool
    """Whether the order of two rows of a key decides what comes of them."""

    def samples(self, recipe: bytes, sampler: Sampler, seed: int) -> tuple[Any, int]:
        """A sample of the keys, with what they stand for, and the number of rows read."""
        ...

    def reports(self, recipe: bytes, partitions: int) -> list[str]:
        """The reports of all partitions, when the tasks have written them."""
        ...


def check_sampler(sampler: str) -> None:
    if sampler not in SAMPLERS:
        raise UsageError(f"the sampler is {sampler!r}, and has to be one of {', '.join(SAMPLERS)}")


def drive(
    job: Job,
    table: str,
    options: PushOptions,
    source: str,
    sampler: Sampler,
    seed: int,
    draws: Drawing | None,
) -> PushResult:
    """A whole push. `source` is what messages call the data."""
    given = {**options, "boundaries": boundaries_word(options.get("boundaries"))}
    try:
        push = DistributedPush(["push", *words(given), "--", table], job.schema, source)
        try:
            job.by_age = options.get("duplicates") in ("first", "last")
            if push.needs_samples:
                push.set_boundaries(*job.samples(push.recipe(), sampler, seed))
            reports = job.reports(push.recipe(), push.partitions)
            held, text, messages = push.commit(reports, draws)
        except BaseException:
            push.abandon()
            raise
    finally:
        if draws is not None:
            draws.close()
    return outcome(held, text, [*not_stored(job.schema), *messages])


def drive_load(
    job: Job, table: str, key: str, options: TaskLoadOptions, source: str, draws: Drawing | None
) -> LoadResult:
    """A whole load into a live table of a cluster. `source` is what messages call the data."""
    given: dict[str, Any] = {"key": key, **options}
    try:
        load = DistributedLoad(["load", *words(given), "--", table], job.schema, source)
        try:
            job.by_age = load.by_age
            if load.planned:
                sampled = load.needs_samples
                samples = job.samples(load.recipe(), "interval", 0) if sampled else (None, 0)
                load.make_ready(*samples, draws)
            text = load.commit(job.reports(load.recipe(), load.partitions), draws)
        except BaseException:
            load.abandon()
            raise
    finally:
        if draws is not None:
            draws.close()
    log_messages(table, not_stored(job.schema))
    return load_outcome(text)
