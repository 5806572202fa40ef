"""What the driver of a push does, whichever engine runs the tasks (see `_tasks`)."""

from __future__ import annotations

from typing import Any, Protocol

from ._command import boundaries_word, words
from ._errors import UsageError
from ._forebay import DistributedPush
from ._options import PushOptions
from ._progress import Drawing
from ._push import PushResult, outcome
from ._sampling import SAMPLERS, Sampler


class Job(Protocol):
    """What an engine does for a push."""

    schema: Any

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
    """The whole push. `source` is what messages call the data."""
    given = {**options, "boundaries": boundaries_word(options.get("boundaries"))}
    try:
        push = DistributedPush(["push", *words(given), "--", table], job.schema, source)
        try:
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
    return outcome(held, text, messages)
