"""How far a long operation is: bars by tqdm, lines, or a function of the caller's."""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Progress:
    """One moment of an operation, which the function that was given as `progress` is called with.

    - `stage`: what it does: `reading`, `building`, `comparing` and others
    - `done`: how much of the stage is done, `total`: how much there is, None where that is not
      known
    - `unit`: of both: `rows`, `bytes`, `pages` or `partitions`
    - `seconds`: since the stage began

    >>> import pyarrow as pa
    >>> seen = []
    >>> ids = pa.table({"id": [1, 2]})
    >>> forebay.push(ids, "ids", key="{id}", store=store, progress=seen.append).rows
    2
    >>> isinstance(seen[0], forebay.Progress)
    True
    """

    stage: str
    done: int
    total: int | None
    unit: str
    seconds: float


ProgressOption = bool | Callable[[Progress], object] | None


class Drawing(Protocol):
    """What the extension module calls, from any thread."""

    def stage(self, name: str, total: int | None, unit: str) -> None: ...
    def advance(self, n: int) -> None: ...
    def close(self) -> None: ...


class _Calls:
    """Calls a function at the beginning of each stage, while it runs and when it ends."""

    def __init__(self, function: Callable[[Progress], object]) -> None:
        self._function = function
        self._lock = threading.RLock()
        self._now: tuple[str, int | None, str] | None = None
        self._done = 0
        self._began = 0.0

    def stage(self, name: str, total: int | None, unit: str) -> None:
        with self._lock:
            self._now, self._done, self._began = (name, total, unit), 0, time.monotonic()
            self._tell()

    def advance(self, n: int) -> None:
        with self._lock:
            self._done += n
            self._tell()

    def _tell(self) -> None:
        if self._now is not None:
            name, total, unit = self._now
            seconds = time.monotonic() - self._began
            self._function(Progress(name, self._done, total, unit, seconds))

    def close(self) -> None:
        pass


class _Bars:
    """A bar of tqdm for each stage, in a terminal or a notebook."""

    def __init__(self, label: str) -> None:
        tqdm: Any = importlib.import_module("tqdm.auto")
        self._tqdm = tqdm.tqdm
        self._label = label
        self._lock = threading.RLock()
        self._bar: Any = None

    def stage(self, name: str, total: int | None, unit: str) -> None:
        with self._lock:
            self.close()
            scale = 1024 if unit == "bytes" else 1000
            self._bar = self._tqdm(
                desc=f"{self._label}: {name}",
                total=total,
                unit="B" if unit == "bytes" else f" {unit}",
                unit_scale=True,
                unit_divisor=scale,
            )

    def advance(self, n: int) -> None:
        with self._lock:
            if self._bar is not None:
                self._bar.update(n)

    def close(self) -> None:
        with self._lock:
            if self._bar is not None:
                self._bar.close()
                self._bar = None


class _Lines:
    """A line on standard error when a stage has ended."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._last: Progress | None = None
        self._calls = _Calls(self._note)

    def _note(self, progress: Progress) -> None:
        self._last = progress

    def stage(self, name: str, total: int | None, unit: str) -> None:
        self.close()
        self._calls.stage(name, total, unit)

    def advance(self, n: int) -> None:
        self._calls.advance(n)

    def close(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            amount = f"{last.done:,} {last.unit} in {last.seconds:.2f} s"
            print(f"{self._label}: {last.stage}: {amount}", file=sys.stderr)


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


def drawing(option: ProgressOption, label: str) -> Drawing | None:
    """What draws: nothing, bars, lines, or what the caller gave.

    Without a choice there are bars where somebody can see them and tqdm is installed.
    """
    if callable(option):
        return _Calls(option)
    has_tqdm = importlib.util.find_spec("tqdm") is not None
    if option is None:
        return _Bars(label) if has_tqdm and (sys.stderr.isatty() or _in_notebook()) else None
    if not option:
        return None
    return _Bars(label) if has_tqdm else _Lines(label)
