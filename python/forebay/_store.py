"""`forebay.open`: a store in this process, its tables and their versions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Literal, Self, Unpack, cast, overload

from ._batch import Batch, Key, Ttl, pair
from ._command import Path, boundary_options, run
from ._data import Data
from ._dry_run import DryRun
from ._errors import DamagedError, Error
from ._forebay import RawStore, RawTable, Scan, is_forked, open_url
from ._load import LoadResult, load
from ._mapping import Mapped
from ._options import CreateOptions, LoadOptions, PushOptions
from ._progress import ProgressOption, drawing
from ._push import PushResult, carry_out
from ._results import (
    TABLES,
    VERSIONS,
    Compacted,
    Diff,
    Listing,
    Swapped,
    TableInfo,
    Verified,
    VersionInfo,
    diff_of,
    table_info,
    version_info,
)
from ._taking import takes
from ._text import at_home, between, html_table
from ._unopened import Unopened

# Threads do not come along: what was open is the parent's.
os.register_at_fork(after_in_child=is_forked)

__all__ = ["Batch", "Scan", "Store", "Table", "open"]


def open(store: Path, *, create: bool = False, memory_bytes: int | None = None) -> Store:
    """Opens a store, to be read and written in this process; gives a `Store`.

    `store` is a directory (str or path; `~` is the home), or the URL (str) of one in object
    storage, which has batch tables alone. With `create` (bool) a missing one is created.
    `memory_bytes` (int) is what its live tables may use for what is not written yet, by default a
    quarter of the machine's memory.

    Raises `MissingError` where there is no store, and `UsageError` for an invalid URL.

    >>> with forebay.open(store, create=True) as opened:
    ...     opened.tables()
    Tables of ...: none yet
    >>> forebay.open("nowhere")
    Traceback (most recent call last):
        ...
    forebay.MissingError: there is no forebay store at nowhere: check the path; ...
    """
    return Store(store, create, memory_bytes)


class Store(RawStore):
    """An open store; `forebay.open` gives it.

    `opened["people"]` is a table, `opened["people@3"]` a version of it; looped over it gives the
    names of its tables. A live table is opened when it is asked for, for this process alone, until
    it or the store is closed: another process gets a `BusyError`. A store is a context manager, and
    may be used by several threads. Pickled, it is opened again by its address; in a forked process
    its batch tables can be read, and its live ones are the parent's.

    >>> import pyarrow as pa
    >>> opened = forebay.open(store, create=True)
    >>> rows = pa.table({"id": ["a", "b", "c"], "name": ["Ada", "Bob", "Cyd"]})
    >>> opened.push(rows, "people", key="{id}").version
    1
    >>> list(opened), "people" in opened, len(opened)
    (['people'], True, 1)
    >>> opened["people"]["b"]
    {'id': 'b', 'name': 'Bob'}
    >>> opened["nobody"]
    Traceback (most recent call last):
        ...
    forebay.MissingError: ...

    The examples of the methods continue from here.
    """

    def __new__(cls, url: Path, create: bool = False, memory_bytes: int | None = None) -> Self:
        return super().__new__(cls, at_home(url), create, memory_bytes)

    def __getitem__(self, target: str) -> Table:
        return Table(self, target)

    def __contains__(self, name: object) -> bool:
        return any(table.table == name for table in self.tables())

    def __iter__(self) -> Iterator[str]:
        return iter([table.table for table in self.tables()])

    def __len__(self) -> int:
        return len(self.tables())

    def tables(self) -> Listing[TableInfo]:
        """The tables of the store, as a list of `TableInfo` that shows itself as a table.

        >>> [(info.table, info.rows) for info in opened.tables()]
        [('people', 3)]
        """
        rows = run("tables", store=open_url(self))
        items = [table_info(row) for row in rows]
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
        """Builds a version of a table of this store from data, checks it and swaps it in.

        `data`, `table` and `dry_run` are those of `forebay.push`, and so are the options, the
        result and what is raised.

        >>> opened.push([{"id": "x", "price": 3.5}], "prices", key="{id}").rows
        1
        """
        return carry_out(data, table, dry_run, {"store": open_url(self), **options})

    @overload
    def create(self, table: str, **options: Unpack[CreateOptions]) -> Table: ...
    @overload
    def create(self, table: str, *, replicas: int, **options: Unpack[CreateOptions]) -> None: ...
    @takes(CreateOptions)
    def create(
        self, table: str, *, replicas: int | None = None, **options: Unpack[CreateOptions]
    ) -> Table | None:
        """Makes a live table, which takes writes at any time, and opens it; gives the `Table`.

        `table` (str) is its name. In the store of a cluster, `replicas` (int) says on how many
        nodes each partition is: 1, 3 or 5. Such a table is at the nodes, not in the store: nothing
        is opened, None is given, and `forebay.connect` reads and writes it.

        Raises `UsageError` for a table that is there already, and for an option that is none or
        does not go with another.

        >>> clicks = opened.create("clicks", delta="i64", durability="100ms")
        >>> clicks.delta("page-7", 3)
        >>> clicks.delta("page-7", 4)
        >>> clicks["page-7"]
        7
        """
        given = {**options, "replicas": replicas, **boundary_options(options.get("boundary"))}
        made = run("create", [table], given, store=open_url(self))
        return None if "replicas" in made else self[table]

    def drop(self, table: str) -> None:
        """Removes a table with all its versions, or a live table; `table` (str) is its name.

        Raises `MissingError` where there is no such table, and `BusyError` while another process
        pushes to it or has it open.

        >>> opened.drop("people")
        >>> "people" in opened
        False
        """
        self._close_table(table)
        run("drop", [table], {"yes": True}, store=open_url(self))

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
    """A table of a store, read by key, and written where it is live; `store["people"]` gives it.

    Of a batch table this is one version, the serving one when it was taken from its store, so that
    all reads agree; `refresh` switches to what serves by then. A live table is read as it is. Keys
    are str, bytes or whole numbers, which stand for their digits. Values are as `kind` says: bytes,
    numbers, dicts of columns or lists.

    `table[key]` is the value of a key, with a KeyError where it is absent; `key in table`,
    `len(table)`, `dict(table)` and a loop over the keys work as they do of a dict. A table is a
    context manager, and may be used by several threads. Pickled, it is opened again by the address
    of its store, at the same version.

    >>> import pyarrow as pa
    >>> opened = forebay.open(store, create=True)
    >>> rows = pa.table(
    ...     {"id": ["a", "b", "c"], "name": ["Ada", "Bob", "Cyd"], "age": [36, 41, 19]}
    ... )
    >>> opened.push(rows, "people", key="{id}", order="ordered").version
    1
    >>> people = opened["people"]
    >>> people["b"]
    {'id': 'b', 'name': 'Bob', 'age': 41}
    >>> "x" in people, len(people), list(people)
    (False, 3, ['a', 'b', 'c'])
    >>> clicks = opened.create("clicks", delta="i64")
    >>> clicks.put("page-7", 3)
    >>> sessions = opened.create("sessions")

    The examples of the methods continue from here.
    """

    def __init__(  # pyright: ignore[reportInconsistentConstructor]
        self, store: Store, target: str
    ) -> None:
        self._store = store
        self._target = target

    @property
    def store(self) -> Store:
        """The `Store` that it was taken from.

        >>> people.store is opened
        True
        """
        return self._store

    @property
    def live(self) -> bool:
        """Whether it is a live table, which takes writes; else it is a version of a batch table.

        >>> people.live, clicks.live
        (False, True)
        """
        return self.version is None

    def refresh(self) -> bool:
        """Goes on to the version that serves now; gives whether that is another one (bool).

        A table that was taken by the number of a version stays there. Raises `Error` where the
        store is closed, and `MissingError` where the table is no more.

        >>> opened.push([{"id": "d", "name": "Dan", "age": 50}], "people", onto="current").version
        2
        >>> "d" in people, people.refresh(), "d" in people
        (False, True, True)
        """
        return self._go_to(self._store, self._target)

    def __len__(self) -> int:
        """How many records there are.

        Of a version whose count is known that is at once; of others, and of live tables, all are
        looked at.
        """
        return self.count()

    # Versions.

    def versions(self) -> Listing[VersionInfo]:
        """The versions of a batch table, oldest first, as a list of `VersionInfo`.

        It shows itself as a table. Raises `UsageError` for a live table.

        >>> [(info.version, info.rows, info.serving) for info in people.versions()]
        [(1, 3, True)]
        """
        rows = run("versions", [self.name], store=open_url(self._store))
        items = [version_info(row) for row in rows]
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
        """Builds a version of this table from data, and switches to the version that serves then.

        `data` and `dry_run` are those of `forebay.push`, and so are the options, the result and
        what is raised.

        >>> people.push([{"id": "a", "name": "Al", "age": 36}], onto="current").version
        2
        >>> people.version, people["a"]["name"]
        (2, 'Al')
        """
        try:
            return carry_out(data, self.name, dry_run, {"store": open_url(self._store), **options})
        finally:
            self.refresh()

    def swap(self, version: int) -> Swapped:
        """Lets a version serve, for everybody, and switches to it; gives a `Swapped`.

        `version` (int) is its number. Raises `MissingError` where there is no such version,
        `UsageError` for a live table, and `BusyError` while somebody pushes to the table.

        >>> people.push([{"id": "a", "name": "Al", "age": 36}], onto="current").version
        2
        >>> people.swap(1)
        Swapped(table='people', version=1, previous=2)
        >>> people["a"]["name"]
        'Ada'
        """
        return self._moved(run("swap", [self.name, str(version)], store=open_url(self._store)))

    def rollback(self, from_version: int | None = None) -> Swapped:
        """Lets the previous version serve, for everybody, and switches to it.

        Gives a `Swapped`. `from_version` (int) is the version to go back from: where another one
        serves, nothing is changed. Without it, a rollback within a minute of another one is
        refused. Raises `UsageError` for these two, `MissingError` where there is none to go back
        to, and what `swap` raises.

        >>> people.push([{"id": "a", "name": "Al", "age": 36}], onto="current").version
        2
        >>> people.rollback(from_version=2).version
        1
        """
        given = {"from": from_version}
        return self._moved(run("rollback", [self.name], given, store=open_url(self._store)))

    def _moved(self, answer: dict[str, Any]) -> Swapped:
        self.refresh()
        return Swapped(**answer)

    def diff(self, before: int, after: int, *, limit: int = 10) -> Diff:
        """What changed between two versions, as a `Diff`, which shows itself as a table.

        `before` and `after` (int) are their numbers; `limit` (int) is how many differences of each
        kind are shown. Raises `MissingError` where there is no such version, and `UsageError` for a
        live table.

        >>> people.push([{"id": "a", "name": "Al", "age": 36}], onto="current").version
        2
        >>> diff = people.diff(1, 2)
        >>> diff.changed, diff.unchanged, diff.differences[0].columns["name"]
        (1, 2, ('Ada', 'Al'))
        """
        arguments = [self.name, str(before), str(after)]
        return diff_of(run("diff", arguments, {"limit": limit}, store=open_url(self._store)))

    def verify(self, *, progress: ProgressOption = None) -> Verified:
        """Reads all back and checks every checksum, count and order; gives a `Verified`.

        `progress` is that of `forebay.push`. Raises `DamagedError` where something is wrong, with
        the file and what is.

        >>> people.verify().rows
        3
        """
        if self.live:
            _, problems = self._verify_live()
            if problems:
                raise DamagedError("\nalso: ".join(problems))
            _, records, _, _ = self._live_stats()
            return Verified(self.name, None, records, None, None)
        draws = drawing(progress, self.name)
        try:
            target = f"{self.name}@{self.version}"
            answer = run("verify", [target], store=open_url(self._store), draws=draws)
        finally:
            if draws is not None:
                draws.close()
        return Verified(**answer)

    def compact(self, *, threads: int | None = None) -> Compacted:
        """Merges the runs of the serving version into one that serves then, and switches to it.

        Versions made with `onto` consist of several runs, which all reads look at. `threads` (int)
        is how many read, sort and write, by default one a core. Gives a `Compacted`. Raises
        `UsageError` for a live table (`optimize` is for these), and `BusyError` while somebody
        pushes to the table.

        >>> people.push([{"id": "a", "name": "Al", "age": 36}], onto="current").version
        2
        >>> made = people.compact()
        >>> made.source, made.version, people.version
        (2, 3, 3)
        """
        answer = run("compact", [self.name], {"threads": threads}, store=open_url(self._store))
        self.refresh()
        return Compacted(source=answer.pop("from"), **answer)

    # Writes to live tables.

    def put_many(
        self, items: Mapping[Any, Any] | Iterable[tuple[Key, Any]], *, ttl: Ttl | None = None
    ) -> int:
        """Sets many keys of a live table, each by itself; gives how many (int).

        `items` is a mapping, or pairs of key and value, to be looped over; keys, values and `ttl`,
        which is of all, are those of `put`. The device is waited for once, which makes this faster
        than many calls of `put`. Raises what `put` raises; some of the keys may be set then.

        >>> clicks.put_many({"a": 1, "b": 2})
        2
        >>> clicks.get_many(["a", "b"])
        [1, 2]
        """
        return self._many("put", items, ttl)

    def delta_many(
        self, items: Mapping[Any, Any] | Iterable[tuple[Key, Any]], *, ttl: Ttl | None = None
    ) -> int:
        """Adds to the values of many keys of a live table, each by itself; gives how many (int).

        `items` is a mapping, or pairs of key and delta, in which a key may come several times;
        keys, deltas and `ttl`, which is of all, are those of `delta`. The device is waited for
        once. Raises what `delta` raises; some of the deltas may be added then.

        >>> clicks.delta_many([("page-7", 1), ("page-8", 1), ("page-7", 1)])
        3
        >>> clicks.get_many(["page-7", "page-8"])
        [5, 1]
        """
        return self._many("delta", items, ttl)

    def _many(
        self, verb: str, items: Mapping[Any, Any] | Iterable[tuple[Key, Any]], ttl: Ttl | None
    ) -> int:
        pairs: Any = items
        if isinstance(items, Mapping):
            pairs = cast(Any, items).items()
        writes = ((verb, *pair(item), ttl) for item in pairs)
        return self._write_many(writes, atomic=False)

    @takes(LoadOptions)
    def load(self, data: Data, *, key: str, **options: Unpack[LoadOptions]) -> LoadResult:
        """Adds many rows to a live table, all at one moment; gives a `LoadResult`.

        `data`, `key` and the options are those of `forebay.load`, and so is what is raised.

        >>> import pyarrow as pa
        >>> counts = pa.table({"page": ["page-7", "page-8"], "n": [10, 20]})
        >>> clicks.load(counts, key="{page}", as_="delta").rows
        2
        >>> clicks.get_many(["page-7", "page-8"])
        [13, 20]
        """
        options["store"] = open_url(self._store)
        return load(data, self.name, key=key, **options)

    def batch(self) -> Batch:
        """Writes to a live table that take effect together when the `with` block ends: a `Batch`.

        Their keys must be in one partition, as keys with the same hashtag do. Raises `UsageError`
        at the end of the block where they do not; nothing is written then.

        >>> with sessions.batch() as batch:
        ...     batch.put("{u1}:lamp", "2")
        ...     batch.put("{u1}:desk", "1")
        ...     batch.delete("{u1}:sofa")
        >>> sessions.get_many(["{u1}:lamp", "{u1}:sofa"])
        [b'2', None]
        """
        return Batch(lambda writes: self._write_many(writes, atomic=True))

    def __reduce__(self) -> tuple[Any, ...]:
        """It is opened again at the version that it read before."""
        at = self._target if self.live else f"{self.name}@{self.version}"
        return _table_again, (self._store, at, self._target)

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


def _store_again(url: str, memory_bytes: int | None) -> Store | Unopened:
    """What a pickled store is made of again."""
    try:
        return open(url, memory_bytes=memory_bytes)
    except Error as error:
        return Unopened(error)


def _table_again(store: Store | Unopened, at: str, target: str) -> Table | Unopened:
    """What a pickled table is made of again."""
    if isinstance(store, Unopened):
        return store
    try:
        table = Table(store, at)
    except Error as error:
        return Unopened(error)
    table._target = target  # pyright: ignore[reportPrivateUsage]
    return table
