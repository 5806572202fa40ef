"""`forebay.load`: many rows into a live table, at one moment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ._command import Path, run_with
from ._data import Data
from ._progress import ProgressOption
from ._push import Duplicates, Format
from ._results import Applied, Lossy, losses
from ._text import count, html_table, size


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

    def __str__(self) -> str:
        return (
            f"{self.table}: {count(self.rows, 'row')} loaded, {size(self.bytes)}, "
            f"in {self.seconds:.2f} s"
        ) + "".join(f"; {loss}" for loss in self.lossy)

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


def load(
    data: Data,
    table: str,
    *,
    key: str,
    store: Path | None = None,
    work_dir: Path | None = None,
    value: str | None = None,
    as_: Literal["update", "insert", "delta"] | None = None,
    op: str | None = None,
    duplicates: Duplicates | None = None,
    ttl: str | None = None,
    ttl_column: str | None = None,
    bad_rows: Literal["fail", "skip"] | Path | None = None,
    column: Mapping[str, str] | Sequence[str] | None = None,
    columns_from: Path | None = None,
    format: Format | None = None,
    csv_delimiter: str | None = None,
    csv_null: str | Sequence[str] | None = None,
    csv_quote: str | None = None,
    csv_no_header: bool = False,
    packet_data: bool = False,
    memory: int | str | None = None,
    threads: int | None = None,
    rate: int | str | None = None,
    progress: ProgressOption = None,
) -> LoadResult:
    """Adds rows to a live table, all at one moment.

    The options are those of `forebay load`; `as_` is `--as`. The table may be served meanwhile,
    or be open in this process or another one; where nobody has it open, it is opened for the load.
    """
    options: dict[str, Any] = {
        name: option
        for name, option in locals().items()
        if name not in ("data", "table", "progress")
    }
    return load_into(table, data, options, progress)


def load_into(
    table: str, data: Data, options: Mapping[str, Any], progress: ProgressOption
) -> LoadResult:
    _, text, _ = run_with("load", table, data, options, progress)
    answer = json.loads(text)
    applied = Applied(*(answer.pop(n) for n in ("updates", "inserts", "deletes", "deltas")))
    lossy = losses(answer.pop("lossy"))
    return LoadResult(**answer, applied=applied, lossy=lossy)
