"""What commands answer, as typed objects that show themselves readably."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from ._statistics import Sides, sides
from ._text import between, count, html_table, plain_table, size

T = TypeVar("T")

_NUMBERS = ("version", "rows", "bytes", "serving", "versions")


class Listing(list[T], Generic[T]):
    """A list that shows itself as a table, in a terminal and in a notebook.

    >>> opened = forebay.open(store, create=True)
    >>> opened.tables()
    Tables of ...: none yet
    """

    def __init__(self, items: Iterable[T], title: str, look: Look[T]) -> None:
        super().__init__(items)
        self._title, self._look = title, look

    def __reduce__(self) -> tuple[Any, ...]:
        # How it shows itself is code.
        return list, (list(self),)

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
    """A table of a store, as `Store.tables` lists it.

    - `table`: its name; `mode`: `batch` or `live`
    - `serving`: the number of the version that serves, `versions`: how many are kept
    - `order`: `hashed` or `ordered`
    - `rows`, `bytes`, `created` (a datetime in UTC): of the serving version, as `VersionInfo` has
      them
    - `backup`: when `forebay backup` last copied it (a datetime in UTC)

    - `problem`: why its pointer or manifest cannot be read, if so

    What is not known, or does not apply to a live table, is None.

    >>> import pyarrow as pa
    >>> opened = forebay.open(store, create=True)
    >>> opened.push(pa.table({"id": [1, 2]}), "ids", key="{id}").version
    1
    >>> info = opened.tables()[0]
    >>> info.table, info.mode, info.serving, info.rows
    ('ids', 'batch', 1, 2)
    """

    table: str
    mode: str
    serving: int | None
    versions: int
    order: str | None
    rows: int | None
    bytes: int | None
    created: datetime | None
    backup: datetime | None = None
    problem: str | None = None


def table_info(answer: dict[str, Any]) -> TableInfo:
    """Of what the command answers."""
    answer["created"] = _moment(answer["created"])
    answer["backup"] = _moment(answer["backup"])
    return TableInfo(**answer)


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
        info.problem or _date(info.created),
    ),
    marked=lambda info: False,
)


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """A version of a table, as `Table.versions` lists it.

    - `version`: its number
    - `rows`, `rows_least`: the greatest and the least number of rows that there can be; the same
      where they are known
    - `bytes`: of its keys and values
    - `created`: when it was made (a datetime in UTC)
    - `serving`: whether it serves
    - `checksum`: of its records; None where it is not known without reading all
    - `runs`: files of sorted records that it consists of
    - `problem`: why its manifest cannot be read, if so
    - `rolled_back`: of a cluster's table: a swap to it wants `force`

    >>> import pyarrow as pa
    >>> opened = forebay.open(store, create=True)
    >>> opened.push(pa.table({"id": [1, 2]}), "ids", key="{id}").version
    1
    >>> info = opened["ids"].versions()[0]
    >>> info.version, info.rows, info.rows_least, info.serving
    (1, 2, 2, True)
    """

    version: int
    rows: int
    rows_least: int
    bytes: int
    created: datetime
    serving: bool
    checksum: str | None
    runs: int
    problem: str | None = None
    rolled_back: bool = False


def version_info(answer: dict[str, Any]) -> VersionInfo:
    """Of what the command answers."""
    answer["created"] = _moment(answer["created"])
    return VersionInfo(**answer)


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
    """What serves from now on, and what served before: of `Table.swap` and `Table.rollback`.

    - `table`: the table's name
    - `version`: the number of the version that serves
    - `previous`: the number of the one that served; None where none did

    >>> forebay.Swapped("people", version=1, previous=2).previous
    2
    """

    table: str
    version: int
    previous: int | None


@dataclass(frozen=True, slots=True)
class Compacted:
    """The version that `Table.compact` made of another one by merging its runs.

    - `table`: the table's name; `version`: the number of the version made
    - `source`: the version whose runs were merged; the same one where there was nothing to merge
    - `serves`: whether the version made serves; `rows`: of it
    - `runs`: runs that were merged; `partitions`: partitions that they were in

    >>> import pyarrow as pa
    >>> opened = forebay.open(store, create=True)
    >>> opened.push(pa.table({"id": [1, 2]}), "ids", key="{id}").version
    1
    >>> opened.push(pa.table({"id": [2]}), "ids", onto="current").version
    2
    >>> made = opened["ids"].compact()
    >>> made.source, made.version, made.rows
    (2, 3, 2)
    """

    table: str
    version: int
    source: int
    serves: bool
    rows: int
    runs: int
    partitions: int


@dataclass(frozen=True, slots=True)
class Verified:
    """A version, or a live table, of which all was read back and is sound; `Table.verify` gives it.

    - `table`: the table's name; `version`: None of a live table
    - `rows`: how many were read, of a live table in its runs
    - `bytes`: of keys and values, `checksum`: of the records; both None of a live table

    >>> import pyarrow as pa
    >>> opened = forebay.open(store, create=True)
    >>> opened.push(pa.table({"id": [1, 2]}), "ids", key="{id}").version
    1
    >>> opened["ids"].verify().rows
    2
    """

    table: str
    version: int | None
    rows: int
    bytes: int | None
    checksum: str | None


@dataclass(frozen=True, slots=True)
class Applied:
    """What the keys of a push onto another version, or of a load, came to.

    - `updates`, `inserts`, `deletes`, `deltas`: how many keys were set, set if absent, removed and
      added to

    >>> forebay.Applied(updates=2, inserts=0, deletes=1, deltas=0).deletes
    1
    """

    updates: int
    inserts: int
    deletes: int
    deltas: int


@dataclass(frozen=True, slots=True)
class Finding:
    """What a limit of the gate found against the version that served.

    - `limit`: as it was given, `seen`: what was seen, in words
    - `passed`: whether the version may serve, by this limit

    >>> forebay.Finding("rows>-20%", "rows, 5 to 1 (-80%)", passed=False).seen
    'rows, 5 to 1 (-80%)'
    """

    limit: str
    seen: str
    passed: bool


@dataclass(frozen=True, slots=True)
class Lossy:
    """How many values of a column a conversion changed, as was asked for by `column`.

    - `column`: its name; `how`: `round`, `truncate`, `null` or `utc`
    - `values`: how many were changed

    >>> str(forebay.Lossy("price", "round", values=2))
    'price: 2 values rounded'
    """

    column: str
    how: str
    values: int

    def __str__(self) -> str:
        words = {"round": "rounded", "truncate": "truncated", "null": "made null"}
        reported = words.get(self.how, "taken for UTC")
        return f"{self.column}: {count(self.values, 'value')} {reported}"


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be stored.

    - `file`: the file that it is in, or the data; `place`: where it is there
    - `reason`: why it cannot be stored

    >>> forebay.BadRow("a.csv", "line 7", "the key is null").place
    'line 7'
    """

    file: str
    place: str
    reason: str


def losses(answer: Iterable[dict[str, Any]]) -> tuple[Lossy, ...]:
    return tuple(Lossy(**lossy) for lossy in answer)


def findings(answer: Iterable[dict[str, Any]]) -> tuple[Finding, ...]:
    return tuple(Finding(**finding) for finding in answer)


@dataclass(frozen=True, slots=True)
class Difference:
    """A key that differs between two versions.

    - `key`: as text; `change`: `added`, `removed` or `changed`
    - `columns`: of a changed row, the columns that differ, each with its value before and after

    >>> one = forebay.Difference("a", "changed", {"price": (3.5, 4.0)})
    >>> one.columns["price"]
    (3.5, 4.0)
    """

    key: str
    change: str
    columns: dict[str, tuple[Any, Any]]


@dataclass(frozen=True, slots=True, repr=False)
class Diff:
    """What changed between two versions; `Table.diff` gives it.

    - `table`: the table's name; `before`, `after`: the numbers of the versions
    - `added`, `removed`, `changed`, `unchanged`: how many keys
    - `columns`: how many rows changed in each column
    - `columns_added`, `columns_removed`, `columns_retyped`: names of columns
    - `schema_changes`: what became of the columns, of what a value is, of the key and of the order,
      in words
    - `statistics`: for each column what was counted of its values in both versions, as a pair of
      `ColumnStatistics`; None where nothing was
    - `differences`: the first `Difference` of each kind, as many as `limit` said

    >>> import pyarrow as pa
    >>> opened = forebay.open(store, create=True)
    >>> for n in (1, 2):
    ...     rows = pa.table({"id": ["a", "b"], "n": [1, n]})
    ...     version = opened.push(rows, "counts", key="{id}", gate="changed<100%").version
    >>> diff = opened["counts"].diff(1, 2)
    >>> diff.changed, diff.columns, diff.differences[0].columns
    (1, {'id': 0, 'n': 1}, {'n': ('1', '2')})
    """

    table: str
    before: int
    after: int
    added: int
    removed: int
    changed: int
    unchanged: int
    columns: dict[str, int]
    columns_added: list[str]
    columns_removed: list[str]
    columns_retyped: list[str]
    schema_changes: list[str]
    statistics: dict[str, Sides]
    differences: list[Difference]

    @property
    def title(self) -> str:
        """The table, the versions and the counts, in words.

        >>> diff.title
        'counts version 1 to 2: 0 added, 0 removed, 1 changed, 1 unchanged'
        """
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


def diff_of(answer: dict[str, Any]) -> Diff:
    """Of what the command answers."""
    schema = answer["schema"]
    return Diff(
        table=answer["table"],
        before=answer["from"],
        after=answer["to"],
        added=answer["added"],
        removed=answer["removed"],
        changed=answer["changed"],
        unchanged=answer["unchanged"],
        columns=answer["columns"],
        columns_added=schema["added"],
        columns_removed=schema["removed"],
        columns_retyped=schema["retyped"],
        schema_changes=[change["text"] for change in schema["changes"]],
        statistics=sides(answer["values"]),
        differences=[
            Difference(
                key=str(sample["key"]),
                change=sample["change"],
                columns={
                    change["column"]: (change["before"], change["after"])
                    for change in sample["columns"]
                },
            )
            for sample in answer["differences"]
        ],
    )


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _date(moment: datetime | None) -> str:
    return "-" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}Z"


def _shown(value: object) -> str:
    return "null" if value is None else str(value)
