"""`forebay.open`: a store in this process, its tables and their versions."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from os import fspath
from types import TracebackType
from typing import Any, Literal, Self, Unpack, cast, overload

from ._command import Path, boundary_options, run
from ._data import Data
from ._dry_run import DryRun
from ._errors import DamagedError, UsageError
from ._forebay import RawScan, RawStore, RawTable, is_forked
from ._load import LoadResult, load
from ._mapping import Mapped
from ._options import CreateOptions, LoadOptions, PushOptions, takes
from ._progress import ProgressOption, drawing
from ._push import PushResult, carry_out
from ._results import (
    TABLES,
    VERSIONS,
    Compacted,
    Diff,
    Difference,
    Listing,
    Swapped,
    TableInfo,
    Verified,
    VersionInfo,
)
from ._text import between, html_table

# Threads do not come along: what was open is the parent's.
os.register_at_fork(after_in_child=is_forked)

Key = str | bytes | int
Ttl = float | timedelta | str
Scan = RawScan


def open(store: Path, *, create: bool = False, memory_bytes: int | None = None) -> Store:
    """Opens a store on this machine, to be read and written in this process.

    With `create` one is made where there is none. `memory_bytes` is what its live tables may use
    for what is not written yet, by default a quarter of the machine's memory.

    >>> forebay.open("nowhere")
    Traceback (most recent call last):
        ...
    forebay.MissingError: there is no forebay store at nowhere: push a table to create one, ...
    """
    return Store(fspath(store), create, memory_bytes)


class Store(RawStore):
    """An open store: `store["people"]` is a table, `store["people@3"]` a version of it.

    Live tables are opened when they are asked for, for this process alone, until they or the store
    are closed. A store is a context manager, and may be used by several threads. Pickled, it is
    opened again by its address; in a forked process its batch tables can be read, and its live ones
    are the parent's.
    """

    def __getitem__(self, target: str) -> Table:
        return Table(self, target)

    def __contains__(self, name: object) -> bool:
        return any(table.table == name for table in self.tables())

    def __iter__(self) -> Iterator[str]:
        return iter([table.table for table in self.tables()])

    def __len__(self) -> int:
        return len(self.tables())

    def tables(self) -> Listing[TableInfo]:
        """The tables of the store."""
        rows = run("tables", store=self.open_url())
        items = [TableInfo.of(row) for row in rows]
        title = f"Tables of {self.url}"
        return Listing(items, title, TABLES)

    @overload
    def push(
        self,
        data: Data,
        table: str,
        *,
        dry_run: Literal[True, "sample", "all"],
        **options: Unpack[PushOptions],
    ) -> DryRun: ...
    @overload
    def push(
        self,
        data: Data,
        table: str,
        *,
        dry_run: Literal[False] = False,
        **options: Unpack[PushOptions],
    ) -> PushResult: ...
    @takes(PushOptions)
    def push(
        self,
        data: Data,
        table: str,
        *,
        dry_run: bool | Literal["sample", "all"] = False,
        **options: Unpack[PushOptions],
    ) -> PushResult | DryRun:
        """`forebay.push` into this store, with the same options."""
        return carry_out(data, table, dry_run, {"store": self.open_url(), **options})

    @overload
    def create(self, table: str, **options: Unpack[CreateOptions]) -> Table: ...
    @overload
    def create(self, table: str, *, replicas: int, **options: Unpack[CreateOptions]) -> None: ...
    @takes(CreateOptions)
    def create(
        self, table: str, *, replicas: int | None = None, **options: Unpack[CreateOptions]
    ) -> Table | None:
        """Makes a live table, with the options of `forebay create`, and opens it.

        >>> with forebay.open(store, create=True) as opened:
        ...     clicks = opened.create("clicks", delta="i64", durability="100ms")
        ...     clicks.delta("page-7", 3)
        ...     clicks.delta("page-7", 4)
        ...     clicks["page-7"]
        7

        In the store of a cluster, `replicas` says on how many nodes each partition is. Such a table
        is at the nodes, not in the store: nothing is opened, and `forebay.connect` reads and writes
        it.
        """
        given = {**options, "replicas": replicas, **boundary_options(options.get("boundary"))}
        made = run("create", [table], given, store=self.open_url())
        return None if "replicas" in made else self[table]

    def drop(self, table: str) -> None:
        """Removes a table with all its versions, or a live table."""
        self.close_table(table)
        run("drop", [table], store=self.open_url())

    def __reduce__(self) -> tuple[Any, ...]:
        return (_store_again, (self.url, self.memory_bytes))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<forebay store {self.url}>"

    def _repr_html_(self) -> str:
        return self.tables()._repr_html_()  # pyright: ignore[reportPrivateUsage]


class Table(Mapped, RawTable):
    """A table of a store, read by key, and written where it is live.

    Of a batch table this is one version, the serving one when it was taken from its store, so that
    all reads agree; `refresh` goes on to what serves by then. A live table is read as it is. Values
    are bytes, numbers, dicts of columns or lists, as `kind` says; keys are text, bytes or whole
    numbers.
    """

    def __init__(  # pyright: ignore[reportInconsistentConstructor]
        self, store: Store, target: str
    ) -> None:
        self._store = store
        self._target = target

    @classmethod
    def of_version(cls, store: Store, target: str, version: int) -> Self:
        """A version of a batch table, which `refresh` takes to what the target names."""
        table = cls(store, f"{target.split('@')[0]}@{version}")
        table._target = target
        return table

    @property
    def store(self) -> Store:
        return self._store

    @property
    def live(self) -> bool:
        return self.version is None

    def refresh(self) -> bool:
        """Goes on to the version that serves now; gives whether that is another one."""
        return self.go_to(self._store, self._target)

    def __len__(self) -> int:
        """How many records there are.

        Of a version whose count is known that is at once; of others, and of live tables, all are
        looked at.
        """
        return self.count()

    def __array__(self, *_: Any, **__: Any) -> Any:
        # pandas and NumPy would make one of keys alone, in silence.
        raise TypeError(
            "a table is no array: table.to_pandas() is a data frame, table.to_arrow() and "
            "table.to_polars() others"
        )

    # As a whole.

    @property
    def schema(self) -> Any:
        """The columns of a scan, as a schema of pyarrow."""
        return self.scan().schema

    def to_arrow(self) -> Any:
        """All records as a table of pyarrow, in the table's order: `scan` with its columns.

        >>> import pyarrow as pa
        >>> with forebay.open(store, create=True) as opened:
        ...     data = pa.table({"id": [1, 2], "name": ["Ada", "Bob"]})
        ...     version = opened.push(data, "people", key="{id}", order="ordered").version
        ...     people = opened["people"]
        ...     people.to_arrow()["name"].to_pylist(), len(people), people.schema.names
        (['Ada', 'Bob'], 2, ['id', 'name'])
        """
        return self.scan().to_arrow()

    def to_pandas(self) -> Any:
        """All records as a data frame of pandas, by pyarrow."""
        return self.scan().to_pandas()

    def to_polars(self) -> Any:
        """All records as a data frame of polars."""
        return self.scan().to_polars()

    # Versions.

    def versions(self) -> Listing[VersionInfo]:
        """The versions of a batch table, oldest first."""
        rows = run("versions", [self.name], store=self._store.open_url())
        items = [VersionInfo.of(row) for row in rows]
        return Listing(items, f"Versions of {self.name}", VERSIONS)

    @overload
    def push(
        self, data: Data, *, dry_run: Literal[True, "sample", "all"], **options: Unpack[PushOptions]
    ) -> DryRun: ...
    @overload
    def push(
        self, data: Data, *, dry_run: Literal[False] = False, **options: Unpack[PushOptions]
    ) -> PushResult: ...
    @takes(PushOptions)
    def push(
        self,
        data: Data,
        *,
        dry_run: bool | Literal["sample", "all"] = False,
        **options: Unpack[PushOptions],
    ) -> PushResult | DryRun:
        """`forebay.push` to this table. Goes on to the version that serves then."""
        try:
            return carry_out(data, self.name, dry_run, {"store": self._store.open_url(), **options})
        finally:
            self.refresh()

    def swap(self, version: int) -> Swapped:
        """Lets a version serve, for everybody, and goes on to it."""
        return self._moved(run("swap", [self.name, str(version)], store=self._store.open_url()))

    def rollback(self) -> Swapped:
        """Back to the version that served before, for everybody; goes on to it."""
        return self._moved(run("rollback", [self.name], store=self._store.open_url()))

    def _moved(self, answer: dict[str, Any]) -> Swapped:
        self.refresh()
        return Swapped(**answer)

    def diff(self, before: int, after: int, *, limit: int = 10) -> Diff:
        """What changed between two versions; `limit` differences of each kind are shown."""
        arguments = [self.name, str(before), str(after)]
        answer = run("diff", arguments, {"limit": limit}, store=self._store.open_url())
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

    def verify(self, *, progress: ProgressOption = None) -> Verified:
        """Reads all back and checks every checksum, count and order; raises if any is wrong."""
        if self.live:
            _, problems = self.verify_live()
            if problems:
                raise DamagedError("\nalso: ".join(problems))
            _, records, _, _ = self.live_stats()
            return Verified(self.name, None, records, None, None)
        draws = drawing(progress, self.name)
        try:
            target = f"{self.name}@{self.version}"
            answer = run("verify", [target], store=self._store.open_url(), draws=draws)
        finally:
            if draws is not None:
                draws.close()
        return Verified(**answer)

    def compact(self, *, threads: int | None = None) -> Compacted:
        """Merges the runs of the serving version, as a version that serves then."""
        answer = run("compact", [self.name], {"threads": threads}, store=self._store.open_url())
        self.refresh()
        return Compacted(source=answer.pop("from"), **answer)

    # Writes to live tables.

    def put_many(
        self, items: Mapping[Any, Any] | Iterable[tuple[Key, Any]], *, ttl: Ttl | None = None
    ) -> int:
        """Sets many keys, each by itself, and waits once for all to be durable; gives how many."""
        pairs: Any = items
        if isinstance(items, Mapping):
            pairs = cast(Any, items).items()
        writes = (("put", key, value, ttl) for key, value in pairs)
        return self.write_many(writes, atomic=False)

    @takes(LoadOptions)
    def load(self, data: Data, *, key: str, **options: Unpack[LoadOptions]) -> LoadResult:
        """Adds many rows to a live table, all at one moment, with the options of `forebay.load`.

        >>> import pyarrow as pa
        >>> with forebay.open(store, create=True) as opened:
        ...     clicks = opened.create("clicks", delta="i64")
        ...     clicks.put("a", 1)
        ...     counts = pa.table({"page": ["a", "b"], "n": [10, 20]})
        ...     loaded = clicks.load(counts, key="{page}", as_="delta")
        ...     loaded.rows, clicks.get_many(["a", "b"])
        (2, [11, 20])
        """
        options["store"] = self._store.open_url()
        return load(data, self.name, key=key, **options)

    def batch(self) -> Batch:
        """Writes that take effect together when the `with` block ends; their keys must lie in one
        partition, as keys with the same hashtag do.

        >>> with forebay.open(store, create=True) as opened:
        ...     carts = opened.create("carts")
        ...     with carts.batch() as batch:
        ...         batch.put("{u1}:lamp", "2")
        ...         batch.put("{u1}:desk", "1")
        ...         batch.delete("{u1}:sofa")
        ...     carts.get_many(["{u1}:lamp", "{u1}:sofa"])
        [b'2', None]
        """
        return Batch(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_table_again, (self._store, self._target, self.version))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _facts(self) -> list[tuple[str, str]]:
        least, most = self.rows_between
        facts = [("mode", "live" if self.live else "batch")]
        if self.live:
            facts.append(("records in runs", f"{most:,}"))
        else:
            facts += [("version", str(self.version)), ("rows", between(least, most))]
        facts += [("order", self.order), ("key", self.key_template)]
        if self.kind == "row":
            facts += [(f"column {name}", kind) for name, kind in self.columns]
        else:
            facts.append(("values", self.kind))
        return facts

    def __repr__(self) -> str:
        if self.live:
            return f"<forebay table {self.name}: live, {self.order}, values are {self.kind}>"
        rows = between(*self.rows_between)
        return f"<forebay table {self.name} version {self.version}: {rows} rows, {self.order}>"

    def _repr_html_(self) -> str:
        return html_table(f"Table {self.name}", ("", " "), self._facts())


def _store_again(url: str, memory_bytes: int | None) -> Store:
    """What a pickled store is made of again."""
    return open(url, memory_bytes=memory_bytes)


def _table_again(store: Store, target: str, version: int | None) -> Table:
    """What a pickled table is made of again: it reads the version that it read before."""
    if version is None:
        return Table(store, target)
    return Table.of_version(store, target, version)


class Batch:
    """Operations on a live table that are done all at once; see `Table.batch`."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._lock = threading.Lock()
        self._writes: list[tuple[str, Key, Any, Ttl | None]] | None = []

    def _add(self, verb: str, key: Key, value: Any = None, ttl: Ttl | None = None) -> None:
        with self._lock:
            if self._writes is None:
                raise UsageError("the batch was written already: begin another one")
            self._writes.append((verb, key, value, ttl))

    def put(self, key: Key, value: Any, *, ttl: Ttl | None = None) -> None:
        """Sets a key's value."""
        self._add("put", key, value, ttl)

    def insert(self, key: Key, value: Any, *, ttl: Ttl | None = None) -> None:
        """Sets a key's value if the key is absent."""
        self._add("insert", key, value, ttl)

    def delta(self, key: Key, delta: Any, *, ttl: Ttl | None = None) -> None:
        """Adds to a key's value."""
        self._add("delta", key, delta, ttl)

    def delete(self, key: Key) -> None:
        """Removes a key."""
        self._add("delete", key)

    def write(self) -> int:
        """Writes them, and waits until they are durable; gives how many there are."""
        with self._lock:
            writes, self._writes = self._writes, None
        if writes is None:
            raise UsageError("the batch was written already: begin another one")
        return self._table.write_many(writes, atomic=True) if writes else 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.write()
