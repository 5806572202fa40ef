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
    """Told in each child of a fork, before anything else runs there."""

def column_names(names: Iterable[str]) -> list[str]:
    """The names as a list, for tables of servers."""

def scan_limit(limit: int) -> int:
    """The number, for tables of servers."""

def key_bytes(key: _Key) -> bytes:
    """What a key is in a table."""

def all_key_bytes(keys: _Keys) -> list[bytes]:
    """The same of many, as `RawTable.get_many` takes them."""

def open_url(store: RawStore) -> str:
    """The store's directory or URL; an error once it is closed."""

def command(
    words: list[str],
    data: object | None = None,
    name: str = "data",
    rows: int | None = None,
    listener: Drawing | None = None,
) -> tuple[bool, str, list[str]]:
    """Runs a command, given as its words. Gives whether the gate held the swap, the result as JSON,
    and what else there was to say. With `data`, an object with an Arrow stream or a batch, a push
    or a load takes its rows from there; `rows` is how many there are, where that is known.
    """

def not_stored(schema: object) -> list[str]:
    """Says which categories, extension types and metadata of a schema are not stored."""

class RawStore:
    """The native part of `forebay.Store`, of which the package's users need not know."""

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

        `name` is the table's (str). Raises `MissingError` where there is no such table, and
        `UsageError` for what is no name.

        >>> opened.is_live("people")
        False
        """

    def _close_table(self, name: str) -> None:
        """Closes the live table of that name, if it is open here."""

    def close(self) -> None:
        """Closes the live tables that are open in it, and the store for further calls.

        What was taken from it before is read on, of batch tables. A later call is an `Error`. The
        end of a `with` block closes it, too.

        >>> opened.close()
        >>> opened.tables()
        Traceback (most recent call last):
            ...
        forebay.Error: the store ... is closed: open it again
        """

class RawTable:
    """The native part of `forebay.Table`, of which the package's users need not know."""

    def __new__(cls, store: RawStore, target: str) -> Self: ...
    @property
    def name(self) -> str:
        """The table's name (str), without a version.

        >>> people.name
        'people'
        """

    @property
    def version(self) -> int | None:
        """The number of the version that is read (int); None where the table is live.

        >>> people.version, clicks.version
        (1, None)
        """

    @property
    def rows_between(self) -> tuple[int, int]:
        """The least and the greatest possible number of rows (two int), as far as is known at once.

        Both are the same where the version's count is known. `len(table)` counts.

        >>> people.rows_between
        (3, 3)
        """

    @property
    def order(self) -> str:
        """How keys are arranged: `hashed`, or `ordered`, which has ranges.

        >>> people.order, clicks.order
        ('ordered', 'hashed')
        """

    @property
    def kind(self) -> str:
        """What values are: `bytes`, `number` (int or float), `row` (dicts of columns) or `list`.

        >>> people.kind, clicks.kind
        ('row', 'number')
        """

    @property
    def key_template(self) -> str:
        """The template over columns that keys are made by; of a live table `{key}`.

        >>> people.key_template
        '{id}'
        """

    @property
    def columns(self) -> list[tuple[str, str]]:
        """The columns of rows: a list of pairs, the name and the Arrow type, both str.

        It is empty where values are no rows. `schema` has them for pyarrow, with the key.

        >>> people.columns
        [('id', 'Utf8'), ('name', 'Utf8'), ('age', 'Int64')]
        """

    @overload
    def get(self, key: _Key, default: None = None) -> Any:
        """The value of a key, or `default` where the key is absent.

        `key` is str, bytes or a whole number, which stands for its decimal digits; `default` is
        any object. A value is as `kind` says; `table[key]` is the same with a KeyError in place
        of `default`.

        Raises TypeError for a key of another class, `UsageError` for a value that Python's
        classes cannot hold (a timestamp with nanoseconds: `scan` reads it), and `DamagedError`.

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

        `keys` is a list or whatever else can be looped over, or a column of NumPy, pandas,
        pyarrow or polars; keys and values are those of `get`. Other threads run meanwhile.

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

        `keys` are those of `get_many`. `columns` is a list of names (list[str]): those that the
        table has then, in that order, by default all that a scan has. All of a row is null where
        its key is absent; its `to_pandas` makes `Int64` and the like of whole numbers among nulls,
        not floats. With `binary` (bool) a column of keys is bytes, not text. No object of Python is
        made for a value, so that this is the fastest way to many.

        Raises `UsageError` for a column that is not there and, without `binary`, for keys that
        are not UTF-8; TypeError for what holds no keys.

        >>> people.get_many_arrow(["c", "x"], columns=["name", "age"]).to_pydict()
        {'name': ['Cyd', None], 'age': [19, None]}
        """

    def count(self) -> int:
        """How many records there are now (int); `len(table)` is the same.

        Of a version whose count is known that is at once; of others, and of live tables, each
        record is looked at. Raises `DamagedError`.

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
        """The records from `start` to before `end` as a `Scan`: an Arrow stream, and to loop over.

        `start` and `end` are keys; None is the table's first and past its last. `limit` (int) is
        how many records there are at most. With `reverse` (bool) they come from the last to the
        first, with `binary` (bool) keys are bytes, not text. `columns` (list[str]) names those
        of the stream, and of rows that are looped over. A live table is read as it is when
        `scan` is called.

        Raises `UsageError` for `start` or `end` in a hashed table, which has no ranges, and for
        a column that is not there; TypeError for a key that is none.

        >>> [key for key, row in people.scan("b")]
        ['b', 'c']
        >>> people.scan(limit=1, reverse=True, columns=["name"]).to_arrow().to_pylist()
        [{'name': 'Cyd'}]
        """

    def put(self, key: _Key, value: Any, *, ttl: _Ttl | None = None) -> None:
        """Sets a key's value in a live table; it is as durable as the table promises then.

        `key` is str, bytes or a whole number. `value` is as `kind` says: str or bytes, a number, a
        dict of columns, or a list. `ttl` is how long the key lasts: seconds (int or float), a
        timedelta, or text as in "12h"; without it, as the table was made. A table that was made
        with `ttl="never"` takes none, nor does one with deltas that was not made with
        `ttl="per-key"`.

        Raises `UsageError` for a batch table, and for a value or `ttl` that the table does not
        take; TypeError for a key or value of a wrong class; `Error` where the table is closed.

        >>> sessions.put("s1", "Ada", ttl="12h")
        >>> sessions["s1"]
        b'Ada'
        """

    def insert(self, key: _Key, value: Any, *, ttl: _Ttl | None = None) -> None:
        """Sets a key's value in a live table if the key is absent, and else leaves it as it is.

        `key`, `value`, `ttl` and what is raised are those of `put`.

        >>> sessions.insert("s1", "Ada")
        >>> sessions.insert("s1", "Bob")
        >>> sessions["s1"]
        b'Ada'
        """

    def delta(self, key: _Key, delta: Any, *, ttl: _Ttl | None = None) -> None:
        """Adds to a key's value in a live table, by the kind of deltas that it was made with.

        `key` and `ttl`, which sets anew how long the key lasts, are those of `put`; `delta` is a
        number, or bytes or str to be appended. An absent key gets it as its value.

        Raises what `put` raises, and `UsageError` for a table that was made without deltas.

        >>> clicks.delta("page-7", 4)
        >>> clicks["page-7"]
        7
        """

    def ttl(self, key: _Key) -> float | None:
        """For how many seconds more a key lasts (float); None: until it is deleted.

        `key` is str, bytes or a whole number. Raises KeyError where the key is absent, and
        TypeError for a key of another class.

        >>> sessions.put("s1", "Ada", ttl=3600)
        >>> 3590 < sessions.ttl("s1") <= 3600
        True
        """

    def delete(self, key: _Key) -> None:
        """Removes a key from a live table, whether it is there or not.

        `key` is str, bytes or a whole number. Raises `UsageError` for a batch table, TypeError
        for a key of another class, and `Error` where the table is closed.

        >>> clicks.delete("page-7")
        >>> "page-7" in clicks
        False
        """

    def _write_many(
        self,
        writes: Iterable[tuple[str, _Key, Any] | tuple[str, _Key, Any, _Ttl | None]],
        atomic: bool,
    ) -> int:
        """Does operations, each (verb, key, value) or (verb, key, value, ttl); all at once, or else
        one by one, waiting for the device once.
        """

    def flush(self) -> None:
        """Writes all that a live table has in memory to runs, its files of sorted records.

        It is done by itself as memory fills. Raises `UsageError` for a batch table, and `Error`
        where the table is closed.

        >>> clicks.flush()
        >>> clicks.rows_between
        (0, 1)
        """

    def optimize(self) -> None:
        """Flushes a live table, then merges the runs of each partition into one.

        Reads have fewer runs to look at then. It is done by itself as runs come to be many.
        Raises what `flush` raises.

        >>> clicks.optimize()
        """

    def _verify_live(self) -> tuple[int, list[str]]:
        """Reads every run of a live table back; gives how many there are and what is wrong."""

    def _live_stats(self) -> tuple[list[int], int, int, int]:
        """How a live table is doing."""

    def _go_to(self, store: RawStore, target: str) -> bool:
        """Goes on to what a target names; gives whether that is another version."""

    def close(self) -> None:
        """Closes a live table, which another process may open then.

        Writes that are under way are waited for. Every later call for the table is an `Error`,
        until it is taken from its store again. The end of a `with` block closes it, too. Of a batch
        table nothing is closed.

        >>> clicks.close()
        >>> opened["clicks"]["page-7"]
        3
        """

class Scan:
    """A range of a table, to be gone through any number of times; `Table.scan` gives it.

    It is an Arrow stream (`pyarrow.table(scan)`, `polars.DataFrame(scan)`), and pairs of key and
    value to loop over. The key is a column of its own unless the columns of its template are there.

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

    The examples of its methods go on from here.
    """

    @property
    def schema(self) -> Any:
        """Its columns as a `pyarrow.Schema`.

        >>> scan.schema.names
        ['id', 'name']
        """

    def to_arrow(self) -> Any:
        """All of it as a `pyarrow.Table`.

        Raises `UsageError`, without `binary`, for keys that are not UTF-8; `DamagedError` for what
        is damaged.

        >>> scan.to_arrow().to_pydict()
        {'id': ['b'], 'name': ['Bob']}
        """

    def to_pandas(self) -> pd.DataFrame:
        """All of it as a `pandas.DataFrame`, made by pyarrow; raises what `to_arrow` raises.

        Whole numbers and truth values among nulls are of pandas' own types, as `Int64` and
        `boolean`: as floats numbers would be rounded.

        >>> scan.to_pandas()["name"].tolist()
        ['Bob']
        """

    def to_polars(self) -> pl.DataFrame:
        """All of it as a `polars.DataFrame`; raises what `to_arrow` raises, of polars.

        >>> scan.to_polars()["name"].to_list()
        ['Bob']
        """

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __iter__(self) -> Iterator[tuple[str, Any]]: ...

class _Records(Iterator[tuple[str, Any]]):
    """The records of a scan, one after another: a key and a value each."""

    def __next__(self) -> tuple[str, Any]: ...

class DistributedPush:
    """A push whose rows tasks bring, where its driver runs. It holds the table's push lock."""

    def __new__(cls, words: list[str], schema: Any, name: str) -> Self:
        """Takes the words of `forebay push` without sources, and the rows' Arrow schema."""

    @property
    def needs_samples(self) -> bool:
        """Whether `set_boundaries` has to be called, with samples, before rows can be encoded."""

    @property
    def partitions(self) -> int:
        """How many partitions there are, once that is settled."""

    def set_boundaries(self, samples: Any | None, rows: int) -> int:
        """Settles where partitions begin, by what `TaskEncoder.sample` gave, a batch or a table.

        `rows` is how many the source has. Gives the number of partitions.
        """

    def recipe(self) -> bytes:
        """What tasks need to know; before `set_boundaries`, for `TaskEncoder.sample` only."""

    def commit(
        self, reports: list[str], listener: Drawing | None = None
    ) -> tuple[bool, str, list[str]]:
        """Publishes the version that the reports tell of; gives what `command` gives."""

    def abandon(self) -> None:
        """Gives the lock back and removes what tasks wrote. After `commit` it does nothing."""

class DistributedLoad:
    """A load into a live table of a cluster whose rows tasks bring, where its driver runs.

    It holds the lock of loads into the table.
    """

    def __new__(cls, words: list[str], schema: Any, name: str) -> Self:
        """Takes the words of `forebay load` without sources, and the rows' Arrow schema."""

    @property
    def by_age(self) -> bool:
        """Whether which of two rows of a key came first matters."""

    @property
    def planned(self) -> bool:
        """Whether `make_ready` is to be called before rows are encoded."""

    @property
    def needs_samples(self) -> bool:
        """Whether that takes samples."""

    @property
    def partitions(self) -> int:
        """How many partitions the table has."""

    def make_ready(self, samples: Any | None, rows: int, listener: Drawing | None = None) -> None:
        """Has the table's partitions cut and moved as the plan says.

        It may be made by what `TaskEncoder.sample` gave, a batch or a table, of so many rows.
        """

    def recipe(self) -> bytes:
        """What tasks need to know; before `make_ready`, for `TaskEncoder.sample` only."""

    def commit(self, reports: list[str], listener: Drawing | None = None) -> str:
        """Has the cluster add what the reports tell of; gives the result as JSON."""

    def abandon(self) -> None:
        """Gives the lock back and removes what tasks wrote. After `commit` it does nothing."""

class TaskEncoder:
    """Turns the rows of one part of the source into records; `source` is that part's number."""

    def __new__(cls, recipe: bytes, source: int) -> Self: ...
    def sample(self, batch: Any, weights: list[int]) -> Any:
        """A batch of `key` and `bytes`, for `set_boundaries`: a row stands for `weights` rows each.

        Rows that cannot be stored are left out.
        """

    def encode(self, batch: Any) -> list[Any]:
        """Takes rows in; gives batches of `partition`, `records`, `source`, `sequence`.

        They are to be sent now. Each of their rows has a bunch of records.
        """

    def finish(self) -> list[Any]:
        """The rest, and the control rows, to be shuffled with it: `sequence` is -1."""

class PartWriter:
    """Writes the runs of whole partitions into the store."""

    def __new__(cls, recipe: bytes, scratch: str) -> Self:
        """`scratch` is a directory of this machine, for what does not fit in memory."""

    def add(self, batch: Any) -> int:
        """Takes bunches of records and control rows in, in any order; gives the number of records.

        Where one of several rows of a key is chosen, sorted by `source` and `sequence`.
        """

    def finish(self) -> list[str]:
        """Writes the runs and reads them back; gives a report for each partition."""
