"""Delta and Iceberg tables: their rows as a stream, as deltalake and pyiceberg read them.

Which files of such a directory are the table, and which rows of those were deleted, only its log
says; so they are never read as loose files.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, cast

from ._errors import UsageError
from ._text import at_home

_BUCKETS = ("s3://", "s3a://", "gs://", "az://")


class Lake(NamedTuple):
    """Rows of such a table, and what messages and the version's manifest call them."""

    stream: Any
    name: str


def lake(data: Any) -> Lake | None:
    """The rows of a table or scan of these packages, or of the table that a path names; None for
    anything else."""
    if isinstance(data, str | PathLike):
        return _at(at_home(cast("str | PathLike[str]", data)))
    package, kind = type(data).__module__.split(".")[0], type(data).__name__
    if package == "deltalake" and kind == "DeltaTable":
        return _delta(data)
    if package == "pyiceberg" and hasattr(data, "to_arrow_batch_reader"):
        return Lake(data.to_arrow_batch_reader(), "pyiceberg scan")
    if package == "pyiceberg" and hasattr(data, "current_snapshot"):
        return _iceberg(data)
    return None


def _at(path: str) -> Lake | None:
    if path.endswith(".metadata.json"):
        static = _package("pyiceberg", "pyiceberg.table", path, "an Iceberg table").StaticTable
        return _iceberg(static.from_metadata(_url(path)))
    if path.startswith(_BUCKETS):
        return _in_bucket(path)
    directory = Path(path.removeprefix("file://"))
    if (directory / "_delta_log").is_dir():
        return _delta(_package("deltalake", "deltalake", path, "a Delta table").DeltaTable(path))
    if any(directory.glob("metadata/*.metadata.json")) or any(
        directory.glob("metadata/*.metadata.json.gz")
    ):
        if not (directory / "metadata" / "version-hint.text").exists():
            raise UsageError(
                f"{path} is an Iceberg table whose catalog alone says which version is current: "
                "load the table from its catalog and push that, or give the path of one of its "
                "metadata/*.metadata.json"
            )
        static = _package("pyiceberg", "pyiceberg.table", path, "an Iceberg table").StaticTable
        return _iceberg(static.from_metadata(path))
    return None


def _in_bucket(url: str) -> Lake | None:
    """A directory of a bucket may be a Delta table. The command refuses a Delta table that
    is not recognised here."""
    last = url.rstrip("/").rsplit("/", 1)[-1]
    if any(letter in url for letter in "*?[") or "." in last or find_spec("deltalake") is None:
        return None
    table: Any = importlib.import_module("deltalake").DeltaTable
    return _delta(table(url)) if table.is_deltatable(url) else None


def _delta(table: Any) -> Lake:
    name = f"{table.table_uri} (Delta version {table.version()})"
    if not hasattr(table, "scan"):
        raise UsageError(f"{name}: this needs deltalake 1.6 or later: pip install -U deltalake")
    return Lake(table.scan(), name)


def _iceberg(table: Any) -> Lake:
    snapshot = table.current_snapshot()
    at = "no snapshot" if snapshot is None else f"snapshot {snapshot.snapshot_id}"
    name = f"{table.metadata.location} (Iceberg {at})"
    return Lake(table.scan().to_arrow_batch_reader(), name)


def _package(package: str, module: str, path: str, what: str) -> Any:
    if find_spec(package) is None:
        raise UsageError(
            f"{path} is {what}, which the package {package} reads: pip install {package}"
        )
    return importlib.import_module(module)


def _url(path: str) -> str:
    return path if "://" in path else str(Path(path).absolute())
