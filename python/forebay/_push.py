"""`forebay.push`: from data to a version that serves."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Unpack, overload

from ._command import boundaries_word, run_with
from ._data import Data
from ._dry_run import DryRun, dry_run_result
from ._errors import GateHeld
from ._options import PushOptions
from ._python_words import reported
from ._results import Applied, Finding, Lossy, findings, losses
from ._statistics import ColumnStatistics, statistics
from ._taking import takes
from ._text import between, count, html_table, size

_log = logging.getLogger("forebay")


@dataclass(frozen=True, slots=True, repr=False)
class PushResult:
    """What a push did; `forebay.push` gives it.

    - `table`: the table's name; `version`: the number of the version made
    - `rows`, `rows_least`: the rows of the version; of one that is based on another the greatest
      and the least possible number
    - `bytes`: of the keys and values that were pushed
    - `rejected`: bad rows left out
    - `lossy`: values that conversions changed, as was asked for by `column`: a `Lossy` a column
    - `duplicates`: rows dropped for, or composed with, another of the same key
    - `seconds`: how long it took
    - `swapped`: whether the version serves
    - `onto`: the version that it is based on, and `applied`: what happened to the keys there
      (`Applied`); else None
    - `gate`: what the gate found against the version that served (`Finding`); empty where no
      version served
    - `statistics`: what was counted of each column (`ColumnStatistics`); empty with `onto`
    - `excluded`: in a cluster, the nodes that were down, which take the version when they are back
    - `undone`: in a cluster, why the version serves nowhere after all; else None
    - `messages`: what else there was to say

    >>> import pyarrow as pa
    >>> result = forebay.push(pa.table({"id": [1, 2]}), "ids", key="{id}", store=store)
    >>> result.version, result.rows, result.swapped, result.onto
    (1, 2, True, None)
    """

    table: str
    version: int
    rows: int
    rows_least: int
    bytes: int
    rejected: int
    lossy: tuple[Lossy, ...]
    duplicates: int
    seconds: float
    swapped: bool
    onto: int | None
    applied: Applied | None
    gate: tuple[Finding, ...]
    statistics: tuple[ColumnStatistics, ...]
    excluded: tuple[str, ...]
    undone: str | None
    messages: tuple[str, ...]

    def __str__(self) -> str:
        state = "serves" if self.swapped else "is built and does not serve"
        noun = "row" if self.rows == self.rows_least == 1 else "rows"
        text = (
            f"{self.table} version {self.version} {state}: {between(self.rows_least, self.rows)} "
            f"{noun}, {size(self.bytes)}, in {self.seconds:.2f} s"
        )
        if self.applied is not None:
            a = self.applied
            text += (
                f"; onto version {self.onto}: {a.updates} updates, {a.inserts} inserts, "
                f"{a.deletes} deletes, {a.deltas} deltas"
            )
        if self.rejected:
            text += f"; {count(self.rejected, 'bad row')} rejected"
        text += "".join(f"; {loss}" for loss in self.lossy)
        if self.duplicates:
            what = "left out" if self.onto is None else "composed"
            text += f"; {count(self.duplicates, 'duplicate')} {what}"
        if self.excluded:
            text += f"; down, and to take it when they are back: {', '.join(self.excluded)}"
        return text

    def __repr__(self) -> str:
        return f"<forebay push: {self}>"

    def _repr_html_(self) -> str:
        time = f"{self.seconds:.2f} s"
        if self.onto is None and self.seconds > 0:
            time += f" ({self.rows / self.seconds:,.0f} rows/s)"
        rows = [
            ("rows", between(self.rows_least, self.rows)),
            ("bytes", size(self.bytes)),
            ("time", time),
        ]
        if self.applied is not None:
            a = self.applied
            changes = f"{a.updates:,} updates, {a.inserts:,} inserts, {a.deletes:,} deletes, "
            rows.append((f"onto version {self.onto}", f"{changes}{a.deltas:,} deltas"))
        if self.rejected:
            rows.append(("bad rows left out", f"{self.rejected:,}"))
        rows += [("changed", str(loss)) for loss in self.lossy]
        if self.duplicates:
            rows.append(("duplicates", f"{self.duplicates:,}"))
        rows += [("", message) for message in self.messages]
        state = "serves" if self.swapped else "is built and does not serve"
        return html_table(f"{self.table} version {self.version} {state}", ("", " "), rows)


def _result(answer: dict[str, Any], messages: Sequence[str]) -> PushResult:
    onto = answer.get("onto")
    applied = None
    if onto is not None:
        applied = Applied(*(answer[n] for n in ("updates", "inserts", "deletes", "deltas")))
    rollout: dict[str, Any] = answer.get("rollout") or {}
    return PushResult(
        table=answer["table"],
        version=answer["version"],
        rows=answer["rows"],
        rows_least=answer.get("rows_least", answer["rows"]),
        bytes=answer["bytes"],
        rejected=answer["rejected"],
        lossy=losses(answer["lossy"]),
        duplicates=answer["duplicates"],
        seconds=answer["seconds"],
        swapped=answer["swapped"],
        onto=onto,
        applied=applied,
        gate=findings(answer["gate"]),
        statistics=statistics(answer["statistics"]),
        excluded=tuple(rollout.get("excluded", ())),
        undone=answer.get("undone"),
        messages=tuple(reported(message) for message in messages),
    )


def outcome(held: bool, text: str, messages: Sequence[str]) -> PushResult:
    """What the extension module reports of a push; `GateHeld` is raised."""
    answer = json.loads(text)
    result = _result(answer, messages)
    # One of the messages of a push that made the store says so: its path may be a wrong one.
    level = logging.WARNING if answer.get("store_created") else logging.INFO
    for message in result.messages:
        _log.log(level, "push to %s: %s", result.table, message)
    if result.undone is not None:
        _log.warning("push to %s: %s", result.table, result.undone)
    _log.info("%s", result)
    if held:
        raise GateHeld(result.messages[-1] if messages else str(result), result)
    return result


@overload
def push(
    data: Data,
    table: str,
    *,
    dry_run: Literal[True, "sample", "all"],
    **options: Unpack[PushOptions],
) -> DryRun: ...
@overload
def push(
    data: Data, table: str, *, dry_run: Literal[False] = False, **options: Unpack[PushOptions]
) -> PushResult: ...
@takes(PushOptions)
def push(
    data: Data,
    table: str,
    *,
    dry_run: bool | Literal["sample", "all"] = False,
    **options: Unpack[PushOptions],
) -> PushResult | DryRun:
    """Builds a version of a table from data, checks it and swaps it in; gives a `PushResult`.

    `data` is anything that speaks Arrow: a data frame of pandas or polars, a DuckDB relation, a
    table, reader or dataset of pyarrow, a table of deltalake or pyiceberg. Such data is read as it
    comes. `data` may also be a list of dicts, a dict of columns, a generator of batches, or paths,
    globs and URLs of files; the path of a Delta table is that table as it is now. `table` (str) is
    the table's name; it is created where it does not exist.

    With `dry_run` nothing is written: a `DryRun` says what the push would do, by a sample of the
    rows (True or "sample"), or by all of them ("all"). A stream is read as far as that takes.

    Raises `GateHeld`, with the result, when the version was built but differs too much from the
    one that serves; `DataError` for rows that cannot be stored; `MissingError` for files that are
    not there; `UsageError` for an invalid option; TypeError for data of a wrong class; `BusyError`
    while another push to the table runs. After any error the serving version continues to serve.
    Ctrl-C stops it.

    >>> import pyarrow as pa
    >>> prices = pa.table({"article": ["a1", "a2"], "price": [3.5, 7.25]})
    >>> forebay.push(prices, "prices", key="{article}", store=store).rows
    2

    Changes on top of what serves:

    >>> changes = pa.table({"article": ["a2", "a3"], "price": [7.0, 1.0]})
    >>> result = forebay.push(changes, "prices", onto="current", store=store)
    >>> result.onto, result.applied.updates
    (1, 2)
    """
    return carry_out(data, table, dry_run, options)


def carry_out(
    data: Data, table: str, dry_run: bool | Literal["sample", "all"], options: PushOptions
) -> PushResult | DryRun:
    """`push`, with its options as a mapping."""
    given: dict[str, Any] = {**options, "dry_run": dry_run}
    progress = given.pop("progress", None)
    given["boundaries"] = boundaries_word(options.get("boundaries"))
    held, text, messages = run_with("push", table, data, given, progress)
    return dry_run_result(text, messages) if dry_run else outcome(held, text, messages)
