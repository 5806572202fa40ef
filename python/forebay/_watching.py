"""Progress of what a cluster does for this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ._progress import Drawing

POLL_S = 0.2
"""Between two looks at how far the tasks are."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Tasks that do the same, one for each part of the data."""

    name: str
    rows: Callable[[], int]
    """How many rows the tasks that have ended went through."""
    total: int | None = None
    """How many there are; without it as many as the stage before had."""


class _Watch:
    def __init__(
        self, draws: Drawing, stages: Sequence[Stage], cancel: Callable[[], object]
    ) -> None:
        self._draws, self._stages, self._cancel = draws, stages, cancel
        self._over, self._failed = threading.Event(), False
        self.raised: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            before = None
            for place, stage in enumerate(self._stages):
                if self._failed:
                    return
                later = self._stages[place + 1 :]
                before = self._follow(stage, before, later)
        except BaseException as error:
            self.raised = error
            # What is to be cancelled may be about to begin.
            while not self._over.wait(POLL_S):
                self._cancel()

    def _follow(self, stage: Stage, before: int | None, later: Sequence[Stage]) -> int:
        """Until the stage has ended, or the next one has got on; gives the rows of the stage."""
        total = before if stage.total is None else stage.total
        self._draws.stage(stage.name, total, "rows")
        done = 0
        while True:
            over = self._over.wait(POLL_S) or any(next.rows() > 0 for next in later)
            # A task whose result was lost counts again when it is done again.
            now = stage.rows() if total is None else min(stage.rows(), total)
            if now > done:
                self._draws.advance(now - done)
                done = now
            if over:
                return done

    def end(self, failed: bool) -> None:
        self._failed = failed
        self._over.set()
        self._thread.join()


@contextmanager
def watched(
    draws: Drawing | None, stages: Sequence[Stage], cancel: Callable[[], object]
) -> Generator[None]:
    """Draws how far the stages are that the block waits for. What drawing raises cancels them, and
    is raised here."""
    if draws is None:
        yield
        return
    watch = _Watch(draws, stages, cancel)
    try:
        yield
    except BaseException:
        watch.end(failed=True)
        if watch.raised is not None:
            raise watch.raised from None
        raise
    watch.end(failed=False)
    if watch.raised is not None:
        raise watch.raised
