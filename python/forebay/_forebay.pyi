"""The extension module; see ../src. What it has is for the package's own use."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Self, TypeVar, overload

import pandas as pd  # pyright: ignore[reportMissingTypeStubs]
import polars as pl

from ._progress import Drawing

_Key = str | bytes | int
_Keys = Iterable[_Key] | Iterable[Any]
_Ttl = float | timedelta | str
_Default = TypeVar("_Default")

version: str

def is_forked() -> None:
    """Called in each child of a fork, before anything else runs in it."""

def column_names(names: Iterable[str]) -> list[str]:
    """Returns the names as a list, for tables of servers."""

def scan_limit(limit: int) -> int:
    """Returns the number, for tables of servers."""

def key_bytes(key: _Key) -> bytes:
    """Returns a key's bytes in a table."""

def all_key_bytes(keys: _Keys) -> list[bytes]:
    """Returns the bytes of many keys, as `RawTable.get_many` takes them."""

def open_url(store: RawStore) -> str:
    """Returns the store's directory or URL, or an error once it is closed."""

def command(
    words: list[str],
    data: object | None = None,
    name: str = "data",
    rows: int | None = None,
    listener: Drawing | None = None,
) -> tuple[bool, str, list[str]]:
    """Runs a command, given as its arguments. Returns whether the gate held the swap, the result as
    JSON, and the messages. With `data`, an object with an Arrow stream or a batch, a push or a load
    reads its rows from it. `rows` is their number, if it is known.
    """

def not_stored(schema: object) -> list[str]:
    """Lists the categories, extension types and metadata of a schema that are not stored."""

class RawStore:
    """The native part of `forebay.Store`, which users of the package do not see."""

    def __new__(cls, url: str, create: bool = False, memory_bytes: int | None = None) -> Self: ...
    @property
    def url(self) -> str:
        """The store's directory or URL (str), as it was opened.

        >>> opened.url == store
        True
        """

    @property
    def memory_bytes(self) -> int | None:
        """How many bytes its live tables may use for what is not written yet (int).

        None: a quarter of the machine's memory.

        >>> opened.memory_bytes is None
        True
        """

    def is_live(self, name: str) -> bool:
        """Whether a table is live.

        `name` is the table's (str). Raises `MissingError` if there is no such table, and
        `UsageError` if the name is invalid.

        >>> opened.is_live("people")
        False
        """

    def _close_table(self, name: str) -> None:
        """Closes the live table of that name, if this store has it open."""

    def close(self) -> None:
        """Closes the live tables that are open in it, and the store for further calls.

        Batch tables that were taken from it before can still be read. A later call is an `Error`.
        The end of a `with` block closes it, too.

        >>> opened.close()
        >>> opened.tables()
        Traceback (most recent call last):
            ...
        forebay.Error: the store ... is closed: open it again
        """

class RawTable:
    """The native part of `forebay.Table`, which users of the package do not see."""

    def __new__(cls, store: RawStore, target: str) -> Self: ...
    @property
    def name(self) -> str:
        """The table's name (str), without a version.

        >>> people.name
        'people'
        """

    @property
    def version(self) -> int | None:
        """The number of the version that is read (int); None if the table is live.

        >>> people.version, clicks.version
        (1, None)
        """

    @property
    def rows_between(self) -> tuple[int, int]:
        """The least and the greatest possible number of rows (two int), known at once.

        Both are the same if the version's count is known. `len(table)` counts.

        >>> people.rows_between
        (3, 3)
        """

    @property
    def order(self) -> str:
        """The order of keys: `hashed`, or `ordered`, which supports ranges.

        >>> people.order, clicks.order
        ('ordered', 'hashed')
        """

    @property
    def kind(self) -> str:
        """The kind of values: `bytes`, `number` (int or float), `row` (dicts of columns) or `list`.

        >>> people.kind, clicks.kind
        ('row', 'number')
        """

    @property
    def key_template(self) -> str:
        """The template over columns from which keys are made; `{key}` for a live table.

        >>> people.key_template
        '{id}'
        """

    @property
    def columns(self) -> list[tuple[str, str]]:
        """The columns of rows: a list of pairs, the name and the Arrow type, both str.

        It is empty if values are not rows. `schema` has them for pyarrow, with the key.

        >>> people.columns
        [('id', 'Utf8'), ('name', 'Utf8'), ('age', 'Int64')]
        """

    @overload
    def get(self, key: _Key, default: None = None) -> Any:
        """The value of a key, or `default` if the key is absent.

        `key` is str, bytes or a whole number, which means its decimal digits; `default` is any
        object. The value is of the table's `kind`; `table[key]` is the same with a KeyError in
        place of `default`.

        Raises TypeError for a key of another class, `UsageError` for a value that Python's classes
        cannot represent (a timestamp with nanoseconds: `scan` reads it), and `DamagedError`.

        >>> people.get("c"), people.get("x", "nobody")
        ({'id': 'c', 'name': 'Cyd', 'age': 19}, 'nobody')
        """

    @overload
    def get(self, key: _Key, default: _Default) -> Any | _Default: ...
    def __getitem__(self, key: _Key) -> Any: ...
    def __contains__(self, key: _Key) -> bool: ...
    @overload
    def get_many(self, keys: _Keys, default: None = None) -> list[Any]:
        """The values of many keys as a list, in their order; `default` for each that is absent.

        `keys` is a list or any other iterable, or a column of NumPy, pandas, pyarrow or polars;
        keys and values are those of `get`. Other threads run meanwhile.

        Raises what `get` raises, and TypeError for text or a data frame in place of keys.

        >>> people.get_many(["c", "x"])
        [{'id': 'c', 'name': 'Cyd', 'age': 19}, None]
        >>> clicks.get_many(pa.array(["page-7", "page-8"]), 0)
        [3, 0]
        """

    @overload
    def get_many(self, keys: _Keys, default: _Default) -> list[Any | _Default]: ...
    def get_many_arrow(
        self, keys: _Keys, columns: Sequence[str] | None = None, *, binary: bool = False
    ) -> Any:
        """The values of many keys as a table of pyarrow: a row for each key, in their order.

        `keys` are those of `get_many`. `columns` is a list of names (list[str]) for the columns of
        the table, in that order; the default is all columns of a scan. A row is null if its key is
        absent; `to_pandas` of the table converts whole numbers among nulls to `Int64` and the like,
        not to floats. With `binary` (bool) a column of keys is bytes, not text. No Python object is
        made for a value, so this is the fastest way to read many.

        Raises `UsageError` for a column that does not exist and, without `binary`, for keys that
        are not UTF-8; TypeError for an object without keys.

        >>> people.get_many_arrow(["c", "x"], columns=["name", "age"]).to_pydict()
        {'name': ['Cyd', None], 'age': [19, None]}
        """

    def count(self) -> int:
        """How many records there are now (int); `len(table)` is the same.

        For a version whose count is known, it returns at once; for other versions, and for live
        tables, it reads each record. Raises `DamagedError`.

        >>> people.count(), clicks.count()
        (3, 1)
        """

    def scan(
        self,
        start: _Key | None = None,
        end: _Key | None = None,
        *,
        limit: int | None = None,
        reverse: bool = False,
        binary: bool = False,
        columns: Sequence[str] | None = None,
    ) -> Scan:
        """The records from `start` to before `end` as a `Scan`: an Arrow stream, and an iterable.

        `start` and `end` are keys; None is the beginning and the end of the table. `limit` (int) is
        the most records. With `reverse` (bool) they are read from the last to the first; with
        `binary` (bool) keys are bytes, not text. `columns` (list[str]) names the columns of the
        stream, and of rows in loops. A live table is read as of the call of `scan`.

        Raises `UsageError` for `start` or `end` in a hashed table, which has no ranges, and for a
        column that does not exist; TypeError for an invalid key.

        >>> [key for key, row in people.scan("b")]
        ['b', 'c']
        >>> people.scan(limit=1, reverse=True, columns=["name"]).to_arrow().to_pylist()
        [{'name': 'Cyd'}]
        """

    def put(self, key: _Key, value: Any, *, ttl: _Ttl | None = None) -> None:
        """Sets a key's value in a live table; returns once it is as durable as the table promises.

        `key` is str, bytes or a whole number. `value` is of the table's `kind`: str or bytes, a
        number, a dict of columns, or a list. `ttl` is how long the key lasts: seconds (int or
        float), a timedelta, or text such as "12h"; the default is the table's TTL. A table that was
        created with `ttl="never"` accepts none, and neither does one with deltas that was not
        created with `ttl="per-key"`.

        Raises `UsageError` for a batch table, and for a value or `ttl` that the table does not
        accept; TypeError for a key or value of a wrong class; `Error` if the table is closed.

        >>> sessions.put("s1", "Ada", ttl="12h")
        >>> sessions["s1"]
        b'Ada'
        """

    def insert(self, key: _Key, value: Any, *, ttl: _Ttl | None = None) -> None:
        """Sets a key's value in a live table if the key is absent; otherwise leaves it as it is.

        `key`, `value`, `ttl` and the exceptions are those of `put`.

        >>> sessions.insert("s1", "Ada")
        >>> sessions.insert("s1", "Bob")
        >>> sessions["s1"]
        b'Ada'
        """

    def delta(self, key: _Key, delta: Any, *, ttl: _Ttl | None = None) -> None:
        """Adds to a key's value in a live table, by the kind of deltas that it was created with.

        `key` and `ttl`, which sets again how long the key lasts, are those of `put`; `delta` is a
        number, or bytes or str to append. An absent key gets it as its value.

        Raises what `put` raises, and `UsageError` for a table that was created without deltas.

        >>> clicks.delta("page-7", 4)
        >>> clicks["page-7"]
        7
        """

    def ttl(self, key: _Key) -> float | None:
        """For how many seconds more a key lasts (float); None: until it is deleted.

        `key` is str, bytes or a whole number. Raises KeyError if the key is absent, and TypeError
        for a key of another class.

        >>> sessions.put("s1", "Ada", ttl=3600)
        >>> 3590 < sessions.ttl("s1") <= 3600
        True
        """

    def delete(self, key: _Key) -> None:
        """Removes a key from a live table, whether it exists or not.

        `key` is str, bytes or a whole number. Raises `UsageError` for a batch table, TypeError for
        a key of another class, and `Error` if the table is closed.

        >>> clicks.delete("page-7")
        >>> "page-7" in clicks
        False
        """

    def _write_many(
        self,
        writes: Iterable[tuple[str, _Key, Any] | tuple[str, _Key, Any, _Ttl | None]],
        atomic: bool,
    ) -> int:
        """Does operations, each (verb, key, value) or (verb, key, value, ttl).

        All at once, or one by one with one wait for the device.
        """

    def flush(self) -> None:
        """Writes all that a live table has in memory to runs, its files of sorted records.

        A table does it by itself as memory fills. Raises `UsageError` for a batch table, and
        `Error` if the table is closed.

        >>> clicks.flush()
        >>> clicks.rows_between
        (0, 1)
        """

    def optimize(self) -> None:
        """Flushes a live table, then merges the runs of each partition into one.

        Reads then have fewer runs to search. A table does it by itself as runs accumulate. Raises
        what `flush` raises.

        >>> clicks.optimize()
        """

    def _verify_live(self) -> tuple[int, list[str]]:
        """Reads every run of a live table back; returns their number and their problems."""

    def _live_stats(self) -> tuple[list[int], int, int, int]:
        """Returns the statistics of a live table."""

    def _go_to(self, store: RawStore, target: str) -> bool:
        """Changes to the version that a target names; returns whether it is another one."""

    def close(self) -> None:
        """Closes a live table, so that another process can open it.

        It waits for writes in progress. Every later call for the table is an `Error`, until it is
        taken from its store again. The end of a `with` block closes it, too. For a batch table it
        does nothing.

        >>> clicks.close()
        >>> opened["clicks"]["page-7"]
        3
        """

class Scan:
    """A range of a table, which can be scanned any number of times; `Table.scan` returns it.

    It is an Arrow stream (`pyarrow.table(scan)`, `polars.DataFrame(scan)`), and an iterable of
    pairs of key and value. The key is a separate column unless the columns of its template are
    included.

    >>> import polars as pl
    >>> import pyarrow as pa
    >>> opened = forebay.open(store, create=True)
    >>> rows = pa.table({"id": ["a", "b"], "name": ["Ada", "Bob"]})
    >>> opened.push(rows, "people", key="{id}", order="ordered").version
    1
    >>> scan = opened["people"].scan("b")
    >>> list(scan)
    [('b', {'id': 'b', 'name': 'Bob'})]
    >>> pl.DataFrame(scan).rows()
    [('b', 'Bob')]

    The examples of its methods continue this one.
    """

    @property
    def schema(self) -> Any:
        """Its columns as a `pyarrow.Schema`.

        >>> scan.schema.names
        ['id', 'name']
        """

    def to_arrow(self) -> Any:
        """All of it as a `pyarrow.Table`.

        Raises `UsageError`, without `binary`, for keys that are not UTF-8; `DamagedError` for
        damaged data.

        >>> scan.to_arrow().to_pydict()
        {'id': ['b'], 'name': ['Bob']}
        """

    def to_pandas(self) -> pd.DataFrame:
        """All of it as a `pandas.DataFrame`, made by pyarrow; raises what `to_arrow` raises.

        Whole numbers and truth values among nulls get pandas' own types, as `Int64` and `boolean`:
        as floats numbers would be rounded.

        >>> scan.to_pandas()["name"].tolist()
        ['Bob']
        """

    def to_polars(self) -> pl.DataFrame:
        """All of it as a `polars.DataFrame`. Raises what `to_arrow` raises, as polars exceptions.

        >>> scan.to_polars()["name"].to_list()
        ['Bob']
        """

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __iter__(self) -> Iterator[tuple[str, Any]]: ...

class _Records(Iterator[tuple[str, Any]]):
    """An iterator over the records of a scan: a key and a value each."""

    def __next__(self) -> tuple[str, Any]: ...

class DistributedPush:
    """A push whose rows tasks add, on its driver. It holds the table's push lock."""

    def __new__(cls, words: list[str], schema: Any, name: str) -> Self:
        """Takes the words of `forebay push` without sources, and the rows' Arrow schema."""

    @property
    def needs_samples(self) -> bool:
        """Whether `set_boundaries` must be called, with samples, before rows can be encoded."""

    @property
    def partitions(self) -> int:
        """The number of partitions, once it is decided."""

    def set_boundaries(self, samples: Any | None, rows: int) -> int:
        """Sets where partitions begin, from results of `TaskEncoder.sample`: a batch or a table.

        `rows` is the number of rows of the source. Returns the number of partitions.
        """

    def recipe(self) -> bytes:
        """The data that tasks need; before `set_boundaries`, for `TaskEncoder.sample` only."""

    def commit(
        self, reports: list[str], listener: Drawing | None = None
    ) -> tuple[bool, str, list[str]]:
        """Publishes the version of the reports; returns what `command` returns."""

    def abandon(self) -> None:
        """Releases the lock and removes what tasks wrote. After `commit` it does nothing."""

class DistributedLoad:
    """A load into a live table of a cluster whose rows tasks add, on its driver.

    It holds the lock of loads into the table.
    """

    def __new__(cls, words: list[str], schema: Any, name: str) -> Self:
        """Takes the words of `forebay load` without sources, and the rows' Arrow schema."""

    @property
    def by_age(self) -> bool:
        """Whether the order of two rows of a key matters."""

    @property
    def planned(self) -> bool:
        """Whether `make_ready` must be called before rows are encoded."""

    @property
    def needs_samples(self) -> bool:
        """Whether `make_ready` needs samples."""

    @property
    def partitions(self) -> int:
        """The number of partitions of the table."""

    def make_ready(self, samples: Any | None, rows: int, listener: Drawing | None = None) -> None:
        """Has the table's partitions split and moved according to the plan.

        The plan may be made from the results of `TaskEncoder.sample`, a batch or a table, of `rows`
        rows.
        """

    def recipe(self) -> bytes:
        """The data that tasks need; before `make_ready`, for `TaskEncoder.sample` only."""

    def commit(self, reports: list[str], listener: Drawing | None = None) -> str:
        """Has the cluster add the rows of the reports; returns the result as JSON."""

    def abandon(self) -> None:
        """Releases the lock and removes what tasks wrote. After `commit` it does nothing."""

class TaskEncoder:
    """Turns the rows of one part of the source into records; `source` is that part's number."""

    def __new__(cls, recipe: bytes, source: int) -> Self: ...
    def sample(self, batch: Any, weights: list[int]) -> Any:
        """Returns a batch of `key` and `bytes`, for `set_boundaries`: each row represents `weights`
        rows.

        Rows that cannot be stored are left out.
        """

    def encode(self, batch: Any) -> list[Any]:
        """Encodes rows; returns batches of `partition`, `records`, `source`, `sequence`.

        Send them now. Each of their rows has a chunk of records.
        """

    def finish(self) -> list[Any]:
        """Returns the rest and the control rows, to be shuffled with it: `sequence` is -1."""

class PartWriter:
    """Writes the runs of whole partitions into the store."""

    def __new__(cls, recipe: bytes, scratch: str) -> Self:
        """`scratch` is a directory of this machine, for what does not fit in memory."""

    def add(self, batch: Any) -> int:
        """Adds chunks of records and control rows, in any order; returns the number of records.

        If one of several rows of a key is chosen, they must be sorted by `source` and `sequence`.
        """

    def finish(self) -> list[str]:
        """Writes the runs and reads them back; returns a report for each partition."""
