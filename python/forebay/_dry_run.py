"""What `forebay.push(..., dry_run=True)` gives."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ._python_words import reported
from ._results import (
    Applied,
    BadRow,
    Finding,
    Lossy,
    findings,
    losses,
)
from ._statistics import ColumnStatistics, statistics
from ._text import between, count, html_table, size


@dataclass(frozen=True, slots=True, repr=False)
class DryRun:
    """What a push would do, as `forebay.push(..., dry_run=True)` gives it. Nothing was written.

    - `table`: the table's name; `version`: the number that the version would have
    - `outlook`: whether it would serve (`swap`), be kept as was asked for (`keep`), be held by the
      gate (`hold`), or fail (`fail`); `problem`: why it would fail, else None
    - `rows_read`: how many were read for this; `all_read`: whether these are all
    - `columns`: the columns that would be stored, and their types as `column` takes them
    - `key`: the template of keys; `value`: what is stored; `order`: `hashed` or `ordered`
    - `partitions`: how many there would be
    - `examples`: the first rows: pairs of key and value
    - `rows`, `rows_least`: the greatest and the least number of rows of the version; None where
      they cannot be known without reading all
    - `bytes`: of keys and values, None likewise; `exact`: whether rows and bytes were counted, not
      estimated
    - `onto`: the version that it would be based on, and `applied`: what happens to the keys there
      (`Applied`); else None
    - `rejected`: bad rows among those read; `bad_rows`: the first of them (`BadRow`)
    - `lossy`: values that conversions changed among those read, as was asked for (`Lossy`)
    - `duplicates`: rows among those read that share a key with another
    - `compared_with`: the version that serves, or None
    - `gate`: what the gate would see (`Finding`)
    - `statistics`: what was counted of each column in the rows read (`ColumnStatistics`)
    - `disk_needed`, `disk_free`: bytes on the store's device; None where they are not known
    - `push_seconds`: how long the push would take, without waiting for the device
    - `seconds`: how long this took
    - `messages`: what else there was to say

    >>> import pyarrow as pa
    >>> ids = pa.table({"id": [1, 2]})
    >>> tried = forebay.push(ids, "ids", key="{id}", store=store, dry_run=True)
    >>> tried.outlook, tried.columns, tried.rows
    ('swap', {'id': 'int64'}, 2)
    """

    table: str
    version: int
    outlook: Literal["swap", "keep", "hold", "fail"]
    problem: str | None
    rows_read: int
    all_read: bool
    columns: dict[str, str]
    key: str
    value: str
    order: str
    partitions: int
    examples: list[tuple[Any, Any]]
    rows: int | None
    rows_least: int | None
    bytes: int | None
    exact: bool
    onto: int | None
    applied: Applied | None
    rejected: int
    bad_rows: tuple[BadRow, ...]
    lossy: tuple[Lossy, ...]
    duplicates: int
    compared_with: int | None
    gate: tuple[Finding, ...]
    statistics: tuple[ColumnStatistics, ...]
    disk_needed: int | None
    disk_free: int | None
    push_seconds: float | None
    seconds: float
    messages: tuple[str, ...]

    @property
    def title(self) -> str:
        """What would become of the version, in words.

        >>> tried.title
        'ids version 1 would serve'
        """
        ends = {
            "swap": "would serve",
            "keep": "would be built and not serve",
            "hold": "would be held by the gate",
            "fail": f"would fail: {self.problem}",
        }
        return f"{self.table} version {self.version} {ends[self.outlook]}"

    def _rows(self) -> list[tuple[str, str]]:
        about = "" if self.exact else "about "
        read = f"{'all ' if self.all_read else ''}{count(self.rows_read, 'row')}"
        rows = [
            ("read", read),
            ("key", f"{self.key} ({self.order})"),
            ("value", self.value),
            *((f"column {name}", kind) for name, kind in self.columns.items()),
            *((f"example {key}", str(value)) for key, value in self.examples),
        ]
        if self.rows is not None and self.bytes is not None:
            least = self.rows if self.rows_least is None else self.rows_least
            rows.append(("rows", f"{about}{between(least, self.rows)}"))
            rows.append(("bytes", f"{about}{size(self.bytes)}"))
        rows.append(("partitions", f"{self.partitions:,}"))
        if self.duplicates:
            rows.append(("duplicates read", f"{self.duplicates:,}"))
        if self.rejected:
            rows.append(("bad rows read", f"{self.rejected:,}"))
        rows += [(row.place, f"{row.file}: {row.reason}") for row in self.bad_rows]
        rows += [("changed", str(loss)) for loss in self.lossy]
        rows += [(("ok" if f.passed else "HELD") + f" {f.limit}", f.seen) for f in self.gate]
        if self.disk_needed is not None:
            free = "" if self.disk_free is None else f", {size(self.disk_free)} free"
            rows.append(("disk", f"about {size(self.disk_needed)} needed{free}"))
        if self.push_seconds is not None:
            rows.append(("time", f"about {self.push_seconds:.2f} s"))
        return rows

    def __str__(self) -> str:
        return "\n".join([self.title, *(f"  {name}: {text}" for name, text in self._rows())])

    def __repr__(self) -> str:
        return f"<forebay dry run: {self.title}>"

    def _repr_html_(self) -> str:
        return html_table(self.title, ("", " "), self._rows())


def dry_run_result(text: str, messages: Sequence[str]) -> DryRun:
    """What the command answers."""
    answer = json.loads(text)
    if answer["problem"] is not None:
        answer["problem"] = reported(answer["problem"])
    applied = None
    if answer.get("updates") is not None:
        applied = Applied(*(answer[n] for n in ("updates", "inserts", "deletes", "deltas")))
    return DryRun(
        rows_read=answer["read"]["rows"],
        all_read=answer["read"]["all"],
        seconds=answer["read"]["seconds"],
        columns={column["name"]: column["type"] for column in answer["columns"]},
        examples=[(example["key"], example["value"]) for example in answer["examples"]],
        rows_least=answer.get("rows_least", answer["rows"]),
        onto=answer.get("onto"),
        applied=applied,
        gate=findings(answer["gate"]),
        statistics=statistics(answer["statistics"]),
        bad_rows=tuple(
            BadRow(**{**row, "reason": reported(row["reason"])}) for row in answer["bad_rows"]
        ),
        lossy=losses(answer["lossy"]),
        disk_needed=answer["disk"]["needed_bytes"],
        disk_free=answer["disk"]["free_bytes"],
        messages=tuple(reported(message) for message in messages),
        **{
            name: answer[name]
            for name in (
                *("table", "version", "outlook", "problem", "key", "value", "order", "partitions"),
                *("rows", "bytes", "exact", "rejected", "duplicates"),
                *("compared_with", "push_seconds"),
            )
        },
    )
