"""What can be pushed: files, and all that speaks Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath
from typing import Any, Protocol, cast, runtime_checkable

from ._lake import lake


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


Data = ArrowStream | ArrowArray | ArrowDataset | LakeTable | LakeScan | Paths


class Input:
    """Files, or an object that speaks Arrow, the name that messages use, and its rows, if known."""

    def __init__(self, data: Data) -> None:
        self.paths: list[str] | None = None
        self.arrow: object | None = None
        self.name = "data"
        self.rows: int | None = None
        table = lake(data)
        if table is not None:
            self.arrow, self.name = table
            return
        self.paths = _paths(data)
        if self.paths is None:
            self.name = f"{type(data).__module__.split('.')[0]}.{type(data).__name__}"
            self.rows = _rows(data)
            self.arrow = _arrow(data, self.name)


def _paths(data: Any) -> list[str] | None:
    if isinstance(data, str | PathLike):
        return [fspath(data)]
    if isinstance(data, list | tuple) and data:
        items = cast(Sequence[Any], data)
        if all(isinstance(item, str | PathLike) for item in items):
            return [fspath(item) for item in items]
    return None


def _arrow(data: Any, name: str) -> object:
    if isinstance(data, ArrowStream | ArrowArray):
        return data
    if isinstance(data, ArrowDataset):
        return data.scanner().to_reader()
    lazy = "; collect it first" if hasattr(data, "collect") else ""
    raise TypeError(
        f"{name} is neither a path nor does it speak Arrow (__arrow_c_stream__){lazy}: give a "
        "data frame of pandas or polars, a DuckDB relation, a table, reader or dataset of pyarrow, "
        "a table of deltalake or pyiceberg, or paths"
    )


def _rows(data: Any) -> int | None:
    """The number of rows, where asking for it costs nothing."""
    for attribute in ("num_rows", "height"):
        rows = getattr(data, attribute, None)
        if isinstance(rows, int):
            return rows
    if type(data).__module__.startswith("pandas."):
        return len(data)
    return None
