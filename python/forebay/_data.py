"""What can be pushed: files, all that speaks Arrow, and Python's own lists and dicts."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, Protocol, cast, runtime_checkable

from ._errors import DataError
from ._iterated import Iterated
from ._lake import lake
from ._objects import of_columns, of_frame, of_rows
from ._text import at_home


@runtime_checkable
class ArrowStream(Protocol):
    """A table, relation or reader with the Arrow PyCapsule interface of streams."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


@runtime_checkable
class ArrowArray(Protocol):
    """A record batch with the Arrow PyCapsule interface of arrays."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> object: ...


@runtime_checkable
class ArrowDataset(Protocol):
    """A dataset of pyarrow: its scanner has the stream."""

    def scanner(self) -> Any: ...


Paths = str | PathLike[str] | Sequence[str | PathLike[str]]


@runtime_checkable
class LakeTable(Protocol):
    """A table of deltalake or pyiceberg, which has a scan."""

    def scan(self) -> Any: ...


@runtime_checkable
class LakeScan(Protocol):
    """A scan of pyiceberg: some rows and columns of a table, at one of its snapshots."""

    def to_arrow_batch_reader(self) -> Any: ...


@runtime_checkable
class LazyFrame(Protocol):
    """A lazy frame of polars, which is computed batch by batch."""

    def collect_batches(self, *, maintain_order: bool = True) -> Iterator[Any]: ...


Rows = Sequence[Mapping[str, Any]]
Columns = Mapping[str, Any]
Batch = ArrowStream | ArrowArray | Rows
Data = (
    ArrowStream
    | ArrowArray
    | ArrowDataset
    | LakeTable
    | LakeScan
    | LazyFrame
    | Paths
    | Rows
    | Columns
    | Iterator[Batch]
)


class Input:
    """Files, or an object that speaks Arrow, the name that messages use, and its rows, if known."""

    def __init__(self, data: Data) -> None:
        self.paths: list[str] | None = None
        self.arrow: object | None = None
        self.name = "data"
        self.rows: int | None = None
        self._iterated: Iterated | None = None
        table = lake(data)
        if table is not None:
            self.arrow, self.name = table
            return
        self.paths = _paths(data)
        if self.paths is None:
            self.name = _name(data)
            self.arrow = self._arrow(data)
            self.rows = _rows(self.arrow)

    @property
    def raised(self) -> BaseException | None:
        """What the generator raised that was read, if it did."""
        return None if self._iterated is None else self._iterated.raised

    def _arrow(self, data: Any) -> object:
        """An object that speaks Arrow, of whatever has rows."""
        if isinstance(data, LazyFrame):
            # Batches come in the order of the rows, which `duplicates="first"` looks at.
            return self._of_iterator(iter(data.collect_batches(maintain_order=True)))
        if isinstance(data, Iterator) and not isinstance(data, ArrowStream):
            return self._of_iterator(cast("Iterator[Any]", data))
        if isinstance(data, ArrowDataset):
            return data.scanner().to_reader()
        if is_of(data, "pyspark") and hasattr(data, "toArrow"):
            # Its own stream fails where there are times.
            return cast("Any", data).toArrow()
        return _at_hand(data, self.name)

    def _of_iterator(self, batches: Iterator[Any]) -> object:
        self._iterated = Iterated(batches, self._table, self.name)
        return self._iterated.reader

    def _table(self, number: int, batch: Any) -> Any:
        pa: Any = importlib.import_module("pyarrow")
        if isinstance(batch, Mapping):
            raise TypeError(f"{self.name} gives dicts: it must give lists of them, as batches")
        if isinstance(batch, str | bytes) or batch is None:
            reported = f"{self.name}: batch {number} is {_called(batch)}"
            raise TypeError(f"{reported}: batches are frames, tables of pyarrow or lists of dicts")
        batch = _at_hand(batch, f"{self.name}: batch {number}, {_class(batch)},")
        return pa.table(batch) if isinstance(batch, ArrowStream) else pa.Table.from_batches([batch])


def _at_hand(data: Any, name: str) -> object:
    """The same of what is in memory as a whole."""
    if isinstance(data, Mapping):
        return of_columns(cast("Columns", data))
    if isinstance(data, list | tuple):
        rows = cast("Sequence[Any]", data)
        if not rows:
            raise DataError("there are no rows, and so no columns: give a table with columns")
        if all(isinstance(row, Mapping) for row in rows):
            return of_rows(rows)
        raise _no_rows(rows)
    if _is_column(data):
        raise TypeError(
            f"{name} is a column: give a frame, or a dict of columns, as {{'name': column}}"
        )
    if isinstance(data, ArrowStream | ArrowArray):
        return of_frame(data) if _is_frame_of_pandas(data) else _of_polars(data)
    raise TypeError(
        f"{name} is neither a path nor does it speak Arrow (__arrow_c_stream__): give a "
        "data frame of pandas or polars, a DuckDB relation, a table, reader or dataset of pyarrow, "
        "a table of deltalake or pyiceberg, a list of dicts, a dict of columns, a generator of "
        "batches, or paths"
    )


def _no_rows(items: Sequence[Any]) -> TypeError:
    """Of a list that is neither of rows nor of paths: which of its items is another than those."""
    kinds = (str, PathLike) if isinstance(items[0], str | PathLike) else (Mapping,)
    place, item = next((n, item) for n, item in enumerate(items, 1) if not isinstance(item, kinds))
    reported = f"element {place} of the list is {_called(item)}"
    if isinstance(item, ArrowStream | ArrowArray):
        return TypeError(f"{reported}: give batches by an iterator, as iter([...])")
    what = "a path" if str in kinds else "a dict"
    return TypeError(f"{reported}, and not {what}: lists are of dicts, one a row, or of paths")


def _called(item: Any) -> str:
    return "None" if item is None else f"of the class {_class(item)}"


def _is_column(data: Any) -> bool:
    """A series or an array, of which Arrow has no names; but of structs those of their fields."""
    if is_of(data, "pandas", "Series", "Index"):
        return True
    kind = str(getattr(data, "dtype", getattr(data, "type", ""))).lower()
    is_array = is_of(data, "pyarrow", "Array", "ChunkedArray")
    return (is_array or is_of(data, "polars", "Series")) and not kind.startswith("struct")


def _of_polars(data: Any) -> Any:
    """The data, if they are not polars', or if those are given to Arrow as they are. Columns of
    Python's objects are addresses in memory there, and those of nulls have a form of their own."""
    if not is_of(data, "polars"):
        return data
    kinds = {name: str(kind) for name, kind in getattr(data, "schema", {}).items()}
    for name, kind in kinds.items():
        if "Object" in kind:
            raise DataError(f"the column '{name}' is of the type {kind} of polars: cast it first")
    return data.to_arrow() if any("Null" in kind for kind in kinds.values()) else data


def _name(data: Any) -> str:
    if isinstance(data, list | tuple | dict):
        return "rows" if not isinstance(data, dict) else "columns"
    return _class(data)


def _class(data: Any) -> str:
    module = type(data).__module__
    return (
        type(data).__name__
        if module == "builtins"
        else f"{module.split('.')[0]}.{type(data).__name__}"
    )


def _paths(data: Any) -> list[str] | None:
    if isinstance(data, str | PathLike):
        return [at_home(cast("str | PathLike[str]", data))]
    if isinstance(data, list | tuple) and data:
        items = cast(Sequence[Any], data)
        if all(isinstance(item, str | PathLike) for item in items):
            return [at_home(item) for item in items]
    return None


def _is_frame_of_pandas(data: object) -> bool:
    return is_of(data, "pandas", "DataFrame")


def is_of(data: object, package: str, *names: str) -> bool:
    """Whether its class, or one that it inherits from, is of a package. In which module of it they
    stand is the package's own affair, and changes: pandas.core.frame, then pandas."""
    return any(
        kind.__module__.split(".")[0] == package and (not names or kind.__name__ in names)
        for kind in type(data).__mro__
    )


def _rows(data: Any) -> int | None:
    """The number of rows, where asking for it costs nothing."""
    for attribute in ("num_rows", "height"):
        rows = getattr(data, attribute, None)
        if isinstance(rows, int):
            return rows
    return None
