"""What a version says of the values of its columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """What was counted of the values of a column.

    - `column`: its name; `nulls`: how many values are null; None in a `Diff`
    - `of`: what the figures are of: `number`, `time` (units since 1970), `truth` (0 and 1) or
      `length` (bytes of texts, items of lists); None where there are none, and all that follows
    - `values`: how many are not null; `zeros`, `negative`, `nan`, `inf`: how many of these are such
    - `min`, `max`, `mean`, `std`: of the finite values; `mean` and `std` are None where their sums
      leave the range of a float; `quantiles`: `p1`, `p5`, `p10` to `p95`, `p99`, estimated from
      `looked_at` rows
    - `common`: the share of the most frequent value; `distinct`: how many different values there
      are; both estimated likewise, and None for lists and maps

    >>> ids = forebay.push({"id": [1, 2, 6]}, "counted", key="{id}", store=store).statistics[0]
    >>> ids.column, ids.mean, ids.max, ids.distinct
    ('id', 3.0, 6.0, 3)
    """

    column: str
    nulls: int | None = None
    of: str | None = None
    values: int | None = None
    zeros: int | None = None
    negative: int | None = None
    nan: int | None = None
    inf: int | None = None
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    std: float | None = None
    quantiles: dict[str, float] | None = None
    looked_at: int | None = None
    common: float | None = None
    distinct: int | None = None


def _statistics(answer: dict[str, Any]) -> ColumnStatistics:
    """JSON's objects have their names in the order of letters: p1, p10, p5."""
    quantiles: dict[str, float] | None = answer.get("quantiles")
    if quantiles is not None:
        by_percent = sorted(quantiles.items(), key=lambda item: int(item[0][1:]))
        answer = {**answer, "quantiles": dict(by_percent)}
    return ColumnStatistics(**answer)


def statistics(answer: Iterable[dict[str, Any]]) -> tuple[ColumnStatistics, ...]:
    """Of what a command answers."""
    return tuple(_statistics(column) for column in answer)


Sides = tuple[ColumnStatistics | None, ColumnStatistics | None]


def sides(answer: Iterable[dict[str, Any]]) -> dict[str, Sides]:
    """By column, of the older and the newer version."""

    def side(column: str, figures: dict[str, Any] | None) -> ColumnStatistics | None:
        return None if figures is None else _statistics({"column": column, **figures})

    return {
        pair["column"]: (side(pair["column"], pair["before"]), side(pair["column"], pair["after"]))
        for pair in answer
    }
