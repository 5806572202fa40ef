"""Which rows of a source stand for all of them when an ordered table is cut into partitions.

Every task samples one part of the source, and keeps of each chosen row its key and its size only.
Three ways (the paper's, docs/papers/parallel-bulk-insertion.md):

- `interval`: of every k rows one, drawn at random, so that rows which come in some rhythm do no
  harm. k doubles whenever too many are held, and of every two samples one stays: a part of any
  length ends with between half the limit and the limit, evenly spread.
- `random`: rows drawn uniformly without replacement. Each row has a random priority, those of the
  least priority stay; a row whose priority would be too great is skipped without being drawn.
- `split`: the first rows of some of the parts. Nothing else is read.

How many parts there are is not known to a task, so that their number cannot set the limit. Instead
the first 64 parts have the whole limit, the next 64 half of it, the next 128 a quarter, and so on:
every doubling of the number of parts adds a constant number of samples. Each sample weighs as many
rows as it stands for, which evens that out.
"""

from __future__ import annotations

import importlib
import math
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Protocol

Sampler = Literal["interval", "random", "split"]
SAMPLERS: tuple[Sampler, ...] = ("interval", "random", "split")

PARTS_WITH_ALL = 64
"""So many parts have the whole limit."""
LIMIT_ROWS = 2048
"""The samples of one such part."""
LEAST_ROWS = 32
"""The samples of any part that is sampled at all."""


class Chooser(Protocol):
    """Chooses among the rows of one part, whose number it does not know before."""

    over: bool
    """Whether no further row can be chosen."""

    def pick(self, rows: int) -> Sequence[int]:
        """The places of the candidates among the next `rows` rows."""
        ...

    def thin(self, held: int) -> Sequence[int] | None:
        """The places of those to keep among the `held` candidates; None where all stay."""
        ...


class Interval:
    def __init__(self, limit: int, seed: str) -> None:
        self.over = False
        self._limit, self._chance = limit, random.Random(seed)
        self._step, self._seen = 1, 0
        self._interval = self._next = 0
        """The next candidate, and the interval that it is of."""

    def pick(self, rows: int) -> Sequence[int]:
        places: list[int] = []
        while self._next < self._seen + rows:
            places.append(self._next - self._seen)
            self._go_to(self._interval + 1)
        self._seen += rows
        return places

    def _go_to(self, interval: int) -> None:
        self._interval = interval
        self._next = interval * self._step + self._chance.randrange(self._step)

    def thin(self, held: int) -> Sequence[int] | None:
        kept: Sequence[int] = range(held)
        while len(kept) > self._limit:
            kept = self._halved(kept)
        return kept if len(kept) < held else None

    def _halved(self, kept: Sequence[int]) -> Sequence[int]:
        """Each two intervals become one, with the candidate of either."""
        pairs = range(0, len(kept) - 1, 2)
        halved = [kept[place + self._chance.getrandbits(1)] for place in pairs]
        first, step = self._chance.getrandbits(1), self._step
        self._step *= 2
        interval = self._interval // 2
        # The next candidate pairs with the last one, or with the one after it.
        if len(kept) % 2 == 1:
            if first:
                halved.append(kept[-1])
                interval += 1
                self._go_to(interval)
        elif not first:
            self._next = interval * self._step + step + self._chance.randrange(step)
        self._interval, self._next = interval, max(self._next, self._seen)
        return halved


class Random:
    def __init__(self, limit: int, seed: str) -> None:
        self.over = False
        self._limit, self._chance = limit, random.Random(seed)
        self._bound = 1.0
        """Priorities are below this."""
        self._priorities: list[float] = []

    def pick(self, rows: int) -> Sequence[int]:
        places: list[int] = []
        place = self._skipped()
        while place < rows:
            places.append(place)
            self._priorities.append(self._chance.random() * self._bound)
            place += 1 + self._skipped()
        return places

    def _skipped(self) -> int:
        """How many rows in a row have a priority above the bound."""
        if self._bound >= 1:
            return 0
        return int(math.log(1 - self._chance.random()) / math.log1p(-self._bound))

    def thin(self, held: int) -> Sequence[int] | None:
        # Bad rows among the candidates were left out; which ones does not matter to chance.
        del self._priorities[held:]
        if held <= self._limit:
            return None
        ranked = sorted(range(held), key=self._priorities.__getitem__)
        self._bound = max(self._priorities[ranked[self._limit]], sys.float_info.min)
        kept = sorted(ranked[: self._limit])
        self._priorities = [self._priorities[place] for place in kept]
        return kept


class First:
    def __init__(self, limit: int) -> None:
        self._left = limit
        self.over = limit == 0

    def pick(self, rows: int) -> Sequence[int]:
        taken = min(rows, self._left)
        self._left -= taken
        self.over = self._left == 0
        return range(taken)

    def thin(self, held: int) -> Sequence[int] | None:
        return None


def _share(part: int) -> int:
    """1 for the first parts, doubling with every doubling of their number."""
    return 1 << (part // PARTS_WITH_ALL).bit_length()


def chooser(sampler: Sampler, part: int, seed: int = 0, limit: int = LIMIT_ROWS) -> Chooser:
    """What chooses among the rows of the part of that number."""
    share = _share(part)
    if sampler == "split":
        # Whole parts are left out rather than reading few rows of each.
        return First(limit if part % share == 0 else 0)
    limit = max(limit // share, min(limit, LEAST_ROWS))
    return (Interval if sampler == "interval" else Random)(limit, f"{seed}/{part}")


def weigh(sampler: Sampler, part: int, rows: int, held: int) -> float:
    """How many rows a sample stands for."""
    if sampler == "split":
        return _share(part)
    return rows / held if held else 0


def sample(
    batches: Iterable[Any], choose: Chooser, encode: Callable[[Any], Any]
) -> tuple[Any | None, int]:
    """The chosen rows as `encode` makes them, in one batch, and how many rows were read.

    `encode` may leave rows out.
    """
    pa: Any = importlib.import_module("pyarrow")
    held: list[Any] = []
    rows = 0
    for batch in batches:
        if choose.over:
            break
        rows += batch.num_rows
        places = choose.pick(batch.num_rows)
        if len(places) == 0:
            continue
        held.append(encode(batch.take(pa.array(places, pa.int64()))))
        kept = choose.thin(sum(part.num_rows for part in held))
        if kept is not None:
            held = [pa.concat_batches(held).take(pa.array(kept, pa.int64()))]
    return (pa.concat_batches(held) if held else None), rows
