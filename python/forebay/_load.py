"""`forebay.load`: many rows into a live table, at one moment."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Unpack

from ._command import run_with
from ._data import Data
from ._options import LoadOptions
from ._python_words import reported
from ._results import Applied, Lossy, losses
from ._taking import takes
from ._text import count, html_table, size

_log = logging.getLogger("forebay")


@dataclass(frozen=True, slots=True)
class RowsSent:
    """How a load with `insert="rows"` sent them.

    - `order`: in which order, `clients`: how many sent at a time, `batch_rows`: rows in a request
    - `requests`: one to several nodes counts for each
    - `sent_again`: rows that were sent more than once, each time but the first

    >>> forebay.RowsSent("sorted", clients=3, batch_rows=512, requests=40, sent_again=0).requests
    40
    """

    order: str
    clients: int
    batch_rows: int
    requests: int
    sent_again: int


@dataclass(frozen=True, slots=True, repr=False)
class LoadResult:
    """What a load did; `forebay.load` gives it.

    - `table`: the table's name
    - `rows`: keys that were loaded; `bytes`: of the keys and values
    - `applied`: what the operations on those keys were (`Applied`)
    - `rejected`: bad rows left out
    - `lossy`: values that conversions changed, as was asked for by `column`: a `Lossy` a column
    - `duplicates`: rows dropped for, or composed with, another of the same key
    - `seconds`: how long it took
    - `insert`: how rows were sent (`RowsSent`), with `insert="rows"`; else None
    - `indexes`: what was done of each secondary index: a `LoadResult` each

    >>> import pyarrow as pa
    >>> opened = forebay.open(store, create=True)
    >>> counts = opened.create("counts", delta="i64")
    >>> result = counts.load(pa.table({"id": ["a", "b"], "n": [1, 2]}), key="{id}")
    >>> result.rows, result.applied.updates
    (2, 2)
    """

    table: str
    rows: int
    bytes: int
    applied: Applied
    rejected: int
    lossy: tuple[Lossy, ...]
    duplicates: int
    seconds: float
    insert: RowsSent | None = None
    """How rows were sent, with `insert="rows"`."""
    indexes: tuple[LoadResult, ...] = ()

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
    """Adds rows to a live table, all at one moment; gives a `LoadResult`.

    `data` is what `forebay.push` takes. `table` (str) is the name of a live table, which
    `Store.create` made. `key` (str) is the template over columns that makes keys. The table may be
    served meanwhile, or be open in this process or another one; where it is not open, it is opened
    for the load. In a cluster each partition adds its rows at one moment of its own, and with
    `index` the sources are files.

    Raises `MissingError` where there is no such table; `UsageError` for a batch table, and for an
    invalid option; `DataError` for rows that cannot be stored; `BusyError` where the table
    does not take them now. Nothing was added then, unless the message says so.

    >>> import pyarrow as pa
    >>> with forebay.open(store, create=True) as opened:
    ...     clicks = opened.create("clicks", delta="i64")
    ...     clicks.put("a", 1)
    >>> counts = pa.table({"page": ["a", "b"], "n": [10, 20]})
    >>> forebay.load(counts, "clicks", key="{page}", as_="delta", store=store).rows
    2
    >>> forebay.open(store)["clicks"].get_many(["a", "b"])
    [11, 20]
    """
    given: dict[str, Any] = {"key": key, **options}
    index = options.get("index")
    if isinstance(index, Mapping):
        given["index"] = [f"{name}={template}" for name, template in index.items()]
    progress = given.pop("progress", None)
    _, text, messages = run_with("load", table, data, given, progress)
    log_messages(table, messages)
    return outcome(text)


def log_messages(table: str, messages: Iterable[str]) -> None:
    """Logs what else there was to say of a load."""
    for message in messages:
        _log.info("load into %s: %s", table, reported(message))


def outcome(text: str) -> LoadResult:
    """What the extension module reports of a load."""
    result = _of(json.loads(text))
    _log.info("%s", result)
    return result


def _of(answer: dict[str, Any]) -> LoadResult:
    applied = Applied(*(answer.pop(n) for n in ("updates", "inserts", "deletes", "deltas")))
    lossy = losses(answer.pop("lossy"))
    indexes = tuple(_of(index) for index in answer.pop("indexes", ()))
    sent = answer.pop("insert", None)
    insert = None if sent is None else RowsSent(**sent)
    return LoadResult(**answer, applied=applied, lossy=lossy, indexes=indexes, insert=insert)
