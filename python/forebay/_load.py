"""`forebay.load`: many rows into a live table, at one moment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Unpack

from ._command import run_with
from ._data import Data
from ._options import LoadOptions, takes
from ._results import Applied, Lossy, losses
from ._text import count, html_table, size


@dataclass(frozen=True, slots=True)
class RowsSent:
    """How a load with `insert="rows"` sent them."""

    order: str
    clients: int
    batch_rows: int
    requests: int
    """One to several nodes counts for each."""
    sent_again: int
    """Rows that were sent more than once, each time but the first."""


@dataclass(frozen=True, slots=True, repr=False)
class LoadResult:
    """What a load did."""

    table: str
    rows: int
    """Keys that were loaded."""
    bytes: int
    applied: Applied
    """What the operations on those keys were."""
    rejected: int
    lossy: tuple[Lossy, ...]
    """Values that conversions changed, as was asked for by `column`."""
    duplicates: int
    seconds: float
    insert: RowsSent | None = None
    """How rows were sent, with `insert="rows"`."""
    indexes: tuple[LoadResult, ...] = ()
    """What was done of each secondary index."""

    def __str__(self) -> str:
        return (
            f"{self.table}: {count(self.rows, 'row')} loaded, {size(self.bytes)}, "
            f"in {self.seconds:.2f} s"
        ) + "".join(f"; {loss}" for loss in (*self.lossy, *self.indexes))

    def __repr__(self) -> str:
        return f"<forebay load: {self}>"

    def _repr_html_(self) -> str:
        a = self.applied
        changes = f"{a.updates:,} updates, {a.inserts:,} inserts, {a.deletes:,} deletes, "
        rows = [
            ("rows", f"{self.rows:,}"),
            ("bytes", size(self.bytes)),
            ("operations", f"{changes}{a.deltas:,} deltas"),
            ("time", f"{self.seconds:.2f} s"),
            *(("changed", str(loss)) for loss in self.lossy),
        ]
        return html_table(f"Loaded into {self.table}", ("", " "), rows)


@takes(LoadOptions)
def load(data: Data, table: str, *, key: str, **options: Unpack[LoadOptions]) -> LoadResult:
    """Adds rows to a live table, all at one moment.

    The options are those of `forebay load`; `as_` is `--as`. The table may be served meanwhile,
    or be open in this process or another one; where nobody has it open, it is opened for the load.

    In a cluster `index={"by_city": "{city}/{id}"}` loads secondary indexes with the table; the
    sources are files then.
    """
    given: dict[str, Any] = {"key": key, **options}
    index = options.get("index")
    if isinstance(index, Mapping):
        given["index"] = [f"{name}={template}" for name, template in index.items()]
    progress = given.pop("progress", None)
    _, text, _ = run_with("load", table, data, given, progress)
    return outcome(text)


def outcome(text: str) -> LoadResult:
    """What the extension module tells of a load."""
    return _of(json.loads(text))


def _of(answer: dict[str, Any]) -> LoadResult:
    applied = Applied(*(answer.pop(n) for n in ("updates", "inserts", "deletes", "deltas")))
    lossy = losses(answer.pop("lossy"))
    indexes = tuple(_of(index) for index in answer.pop("indexes", ()))
    sent = answer.pop("insert", None)
    insert = None if sent is None else RowsSent(**sent)
    return LoadResult(**answer, applied=applied, lossy=lossy, indexes=indexes, insert=insert)
