"""What commands answer, as typed objects that show themselves readably."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from ._text import between, count, html_table, plain_table, size

T = TypeVar("T")

_NUMBERS = ("version", "rows", "bytes", "serving", "versions")


class Listing(list[T], Generic[T]):
    """A list that shows itself as a table, in a terminal and in a notebook."""

    def __init__(self, items: Iterable[T], title: str, look: Look[T]) -> None:
        super().__init__(items)
        self._title, self._look = title, look

    def __repr__(self) -> str:
        if not self:
            return f"{self._title}: none yet"
        rows = [self._look.row(item) for item in self]
        return f"{self._title}\n{plain_table(self._look.head, rows, _NUMBERS)}"

    def _repr_html_(self) -> str:
        if not self:
            return html_table(f"{self._title}: none yet", [], [])
        rows = [self._look.row(item) for item in self]
        marked = [place for place, item in enumerate(self) if self._look.marked(item)]
        return html_table(
            self._title, self._look.head, rows, right=_NUMBERS, marked=marked[0] if marked else None
        )


@dataclass(frozen=True)
class Look(Generic[T]):
    """How the items of a list are shown: heads of columns, texts, which one stands out."""

    head: Sequence[str]
    row: Callable[[T], Sequence[str]]
    marked: Callable[[T], bool]


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table of a store. Of a batch table the last four are of the serving version."""

    table: str
    mode: str
    """`batch` or `live`."""
    serving: int | None
    versions: int
    order: str | None
    rows: int | None
    bytes: int | None
    created: datetime | None

    @classmethod
    def of(cls, answer: dict[str, Any]) -> TableInfo:
        """Of what the command answers."""
        answer["created"] = _moment(answer["created"])
        return cls(**answer)


TABLES = Look[TableInfo](
    head=("table", "mode", "serving", "versions", "order", "rows", "bytes", "created"),
    row=lambda info: (
        info.table,
        info.mode,
        "-" if info.serving is None else str(info.serving),
        str(info.versions),
        info.order or "-",
        "-" if info.rows is None else f"{info.rows:,}",
        "-" if info.bytes is None else size(info.bytes),
        _date(info.created),
    ),
    marked=lambda info: False,
)


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """A version of a table. Its rows are between `rows_least` and `rows`."""

    version: int
    rows: int
    rows_least: int
    bytes: int
    created: datetime
    serving: bool
    checksum: str | None
    """None where it is not known without reading all."""
    runs: int
    problem: str | None = None
    """Why its manifest cannot be read, if so."""
    rolled_back: bool = False
    """Of a cluster's table: a swap to it wants `force`."""

    @classmethod
    def of(cls, answer: dict[str, Any]) -> VersionInfo:
        """Of what the command answers."""
        answer["created"] = _moment(answer["created"])
        return cls(**answer)


VERSIONS = Look[VersionInfo](
    head=("version", "rows", "bytes", "created", "checksum", "state"),
    row=lambda info: (
        str(info.version),
        between(info.rows_least, info.rows),
        size(info.bytes),
        _date(info.created),
        info.checksum or "-",
        info.problem
        or ("serving" if info.serving else "rolled back" if info.rolled_back else "kept"),
    ),
    marked=lambda info: info.serving,
)


@dataclass(frozen=True, slots=True)
class Swapped:
    """What serves from now on, and what served before."""

    table: str
    version: int
    previous: int | None


@dataclass(frozen=True, slots=True)
class Compacted:
    """The version that `compact` made of another one by merging its runs."""

    table: str
    version: int
    source: int
    """The version whose runs were merged; the same one where there was nothing to merge."""
    serves: bool
    rows: int
    runs: int
    """Runs that were merged."""
    partitions: int
    """Partitions that they were in."""


@dataclass(frozen=True, slots=True)
class Verified:
    """A version, or a live table, of which all was read back and is sound."""

    table: str
    version: int | None
    rows: int
    bytes: int | None
    checksum: str | None


@dataclass(frozen=True, slots=True)
class Applied:
    """What the keys of a push onto another version came to."""

    updates: int
    inserts: int
    deletes: int
    deltas: int


@dataclass(frozen=True, slots=True)
class Finding:
    """What a limit of the gate saw, in words, and whether it was passed."""

    limit: str
    seen: str
    passed: bool


@dataclass(frozen=True, slots=True)
class Lossy:
    """How many values of a column a conversion changed, as was asked for."""

    column: str
    how: str
    """`round`, `truncate`, `null` or `utc`."""
    values: int

    def __str__(self) -> str:
        words = {"round": "rounded", "truncate": "truncated", "null": "made null"}
        told = words.get(self.how, "taken for UTC")
        return f"{self.column}: {count(self.values, 'value')} {told}"


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be stored: its file or data, where it is there, and why."""

    file: str
    place: str
    reason: str


def losses(answer: Iterable[dict[str, Any]]) -> tuple[Lossy, ...]:
    return tuple(Lossy(**lossy) for lossy in answer)


def findings(answer: Iterable[dict[str, Any]]) -> tuple[Finding, ...]:
    return tuple(Finding(**finding) for finding in answer)


@dataclass(frozen=True, slots=True)
class Difference:
    """A key that is `added`, `removed` or `changed`, and then its columns before and after."""

    key: str
    change: str
    columns: dict[str, tuple[Any, Any]]


@dataclass(frozen=True, slots=True, repr=False)
class Diff:
    """What changed between two versions: counts, and the first differences of each kind."""

    table: str
    before: int
    after: int
    added: int
    removed: int
    changed: int
    unchanged: int
    columns: dict[str, int]
    """How many rows changed in each column."""
    columns_added: list[str]
    columns_removed: list[str]
    columns_retyped: list[str]
    schema_changes: list[str]
    """What became of the columns, of what a value is, of the key and of the order, in words."""
    differences: list[Difference]

    @property
    def title(self) -> str:
        counts = [
            f"{n:,} {what}"
            for n, what in [
                (self.added, "added"),
                (self.removed, "removed"),
                (self.changed, "changed"),
                (self.unchanged, "unchanged"),
            ]
        ]
        return f"{self.table} version {self.before} to {self.after}: {', '.join(counts)}"

    def _rows(self) -> list[tuple[str, str, str, str, str]]:
        rows: list[tuple[str, str, str, str, str]] = []
        for difference in self.differences:
            changes = difference.columns.items() or [("", ("", ""))]
            for place, (column, (before, after)) in enumerate(changes):
                key = difference.key if place == 0 else ""
                change = difference.change if place == 0 else ""
                rows.append((key, change, column, _shown(before), _shown(after)))
        return rows

    def __repr__(self) -> str:
        head = ("key", "change", "column", "before", "after")
        return f"{self.title}\n{plain_table(head, self._rows(), ())}"

    def _repr_html_(self) -> str:
        return html_table(self.title, ("key", "change", "column", "before", "after"), self._rows())


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _date(moment: datetime | None) -> str:
    return "-" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}Z"


def _shown(value: object) -> str:
    return "null" if value is None else str(value)
