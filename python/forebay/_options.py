"""The options of functions that take rows, each with its type, once.

They are those of the command line by the same names, `-` written as `_`. Functions take them by
`**options: Unpack[...]`, from which editors and type checkers know them; `_taking.takes` tells
`help` of them, and refuses others. What they mean is in `_option_texts.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Literal, TypedDict

from ._command import Boundaries, Path
from ._progress import ProgressOption

Order = Literal["hashed", "ordered"]
Duplicates = Literal["fail", "first", "last"]
Delta = Literal["i64", "i64-saturating", "f64", "append", "min", "max"]
Compression = Literal["none", "lz4", "zstd"]
Format = Literal["parquet", "csv", "jsonl", "arrow", "pcap"]


class RowOptions(TypedDict, total=False):
    """What all rows become, wherever they come from and go."""

    store: Path | None
    work_dir: Path | None
    value: str | None
    duplicates: Duplicates | None
    ttl: float | timedelta | str | None
    ttl_column: str | None
    column: Mapping[str, str] | Sequence[str] | None
    columns_from: Path | None
    memory: int | str | None
    progress: ProgressOption


class VersionOptions(RowOptions, total=False):
    """The version that a push makes."""

    order: Order | None
    partitions: int | None
    boundaries: Boundaries | None
    delta: Delta | None
    version: int | None
    compression: Compression | None
    page_size: int | str | None
    gate: str | Sequence[str] | None
    force: bool
    no_swap: bool
    no_create: bool
    keep: int | None
    replicas: int | None
    deadline: str | None
    min_replicas: int | None
    on_failure: Literal["revert", "keep"] | None


class ReadingOptions(RowOptions, total=False):
    """How this process reads rows."""

    op: str | None
    bad_rows: Literal["fail", "skip"] | Path | None
    format: Format | None
    csv_delimiter: str | None
    csv_null: str | Sequence[str] | None
    csv_quote: str | None
    csv_no_header: bool
    packet_data: bool
    threads: int | None
    rate: int | str | None


class KeyOption(TypedDict, total=False):
    """A class of its own, so that it comes first."""

    key: str | None


class PushOptions(KeyOption, VersionOptions, ReadingOptions, total=False):
    """Those of `forebay.push`."""

    onto: Literal["current"] | int | None


class IntoLiveOptions(TypedDict, total=False):
    """What rows do in a live table, and what is done before they come."""

    as_: Literal["update", "insert", "delta"] | None
    deadline: str | None
    plan: Literal["auto", "always", "none"] | Path | None
    partition_bytes: int | str | None
    move_price: float | None
    batch: int | str | None


class LoadOptions(ReadingOptions, IntoLiveOptions, total=False):
    """Those of `forebay.load`, besides the key."""

    insert: Literal["runs", "rows"] | None
    order: Literal["sorted", "random", "source"] | None
    seed: int | None
    clients: int | None
    batch_rows: int | None
    login: Path | None
    tls_ca: Path | None
    tls_cert: Path | None
    tls_key: Path | None
    index: Mapping[str, str] | Sequence[str] | None


class TaskLoadOptions(RowOptions, IntoLiveOptions, total=False):
    """Those of `forebay.spark.load` and `forebay.ray.load`, besides the key."""

    op: str | None
    bad_rows: Literal["fail", "skip"] | None


class ClusterOptions(VersionOptions, total=False):
    """Those of `forebay.spark.push` and `forebay.ray.push`, besides the key."""

    bad_rows: Literal["fail", "skip"] | None


class CreateOptions(TypedDict, total=False):
    """Those of `Store.create` but for `replicas`."""

    order: Order | None
    partitions: int | None
    boundary: Sequence[str | bytes] | None
    value: Literal["bytes", "row", "list"] | None
    delta: Delta | None
    column: Mapping[str, str] | Sequence[str] | None
    item: str | None
    durability: str | None
    ttl: float | timedelta | str | None
    factor: int | None
    merge_rate: int | str | None
    compression: Compression | None
    replication: Literal["leader"] | None
