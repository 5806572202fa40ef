"""`forebay.connect`: tables of a server or a cluster, by the Redis protocol."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from numbers import Real
from types import TracebackType
from typing import Any, NamedTuple, Self, cast

from ._batch import pair
from ._command import Path
from ._errors import MissingError, UsageError
from ._forebay import column_names, key_bytes, scan_limit
from ._frames import for_pandas
from ._mapping import Mapped
from ._remote_reads import Range, Reader
from ._remote_scan import RemoteScan
from ._remote_values import Key, milliseconds
from ._servers import Servers
from ._text import at_home
from ._wire import Command, Place

RemoteTtl = float | timedelta | str

# Writes that are sent together.
_WRITES_AT_ONCE = 500
# The longest argument that servers take: docs/reference/configuration.md.
_MOST_BYTES = 16 << 20


def connect(
    url: str,
    *,
    timeout: float = 10.0,
    ca_file: Path | None = None,
    certificate_file: Path | None = None,
    key_file: Path | None = None,
) -> Connection:
    """Connects to a server, or to some nodes of a cluster; gives a `Connection`.

    `url` (str) is `redis://host:port,host:port`; `rediss://` is TLS. The port is 7379 where none is
    given; a user and a password stand before the hosts, percent-encoded:
    `redis://user:password@host`. `timeout` (float) is how many seconds an answer is waited for, and
    for how long a call tries again. With TLS, `ca_file` (str or path) is a file of the
    certificates that are trusted, by default the system's; `certificate_file` and `key_file` (str
    or path) are the client's own certificate and its key, for servers that ask for one; all are in
    PEM.

    It needs no store at hand, and the package redis: `pip install 'forebay[redis]'`. Nobody is
    asked before the first call for a table. Raises `UsageError` for an invalid URL, and where
    redis is not installed.

    >>> with forebay.connect(url, timeout=5) as connection:
    ...     connection["people"]["b"]["name"]
    'Bob'
    """
    files = {"ca_certs": ca_file, "certfile": certificate_file, "keyfile": key_file}
    tls = {name: None if file is None else at_home(file) for name, file in files.items()}
    given: Any = url
    if not isinstance(given, str):
        raise TypeError(f"url is str, as in 'redis://127.0.0.1:7379', not {given!r}")
    seconds: Any = timeout
    if isinstance(seconds, bool) or not isinstance(seconds, Real) or not float(seconds) > 0:
        raise UsageError(f"timeout is a number of seconds above 0, not {timeout!r}")
    return Connection(Servers(Place.parse(url), timeout, tls))


class Versioned(NamedTuple):
    """A value, and the version of its key, by which it is compared and set.

    - `value`: as `get` gives it; None where the key is absent
    - `version` (str): for `put_versioned` and `delete_versioned`; an absent key has one, too

    >>> forebay.Versioned(b"Ada", "7").value
    b'Ada'
    """

    value: Any
    version: str


class Connection:
    """A server or a cluster; `forebay.connect` gives it.

    `connection["people"]` is a `RemoteTable`; where no server has it that is a `MissingError`. A
    connection is a context manager, and may be used by several threads. Pickled, it connects again
    by its URL and options, the password among them, when it is first used. A forked process makes
    connections of its own.

    >>> connection = forebay.connect(url)
    >>> connection["people"].get("b")
    {'id': 'b', 'name': 'Bob', 'age': 41}
    """

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    def __getitem__(self, table: str) -> RemoteTable:
        given: Any = table
        if not isinstance(given, str):
            raise TypeError(f"a table's name is str, not {given!r}")
        return RemoteTable(self._servers, table)

    # It does not know all of their tables.
    __iter__ = None

    def __contains__(self, table: str) -> bool:
        """Whether the servers have a table of this name.

        >>> "people" in forebay.connect(url)
        True
        """
        try:
            return bool(self[table].name)
        except MissingError:
            return False

    def close(self) -> None:
        """Ends its connections, as the end of a `with` block does; another call makes new ones.

        >>> connection.close()
        """
        self._servers.wire.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class RemoteTable(Mapped):
    """A table that servers have; `connection["people"]` gives it.

    Each call reads what serves then, or writes a live table. Keys are str, bytes or whole numbers,
    which stand for their digits; values are those of `forebay.Table`, as `kind` says.

    `table[key]` is the value of a key, with a KeyError where it is absent; `key in table`,
    `len(table)`, `dict(table)` and a loop over the keys work as they do of a dict. A table may be
    used by several threads. It is pickled, and survives a fork, as its `Connection` does.

    All reads raise `BusyError` where no server answered in time, and `Error` where the login or a
    permission was refused.

    >>> import pyarrow as pa
    >>> connection = forebay.connect(url)
    >>> people = connection["people"]
    >>> people["b"]
    {'id': 'b', 'name': 'Bob', 'age': 41}
    >>> "x" in people, len(people), list(people)
    (False, 3, ['a', 'b', 'c'])
    >>> clicks, sessions = connection["clicks"], connection["sessions"]
    >>> clicks.put("page-7", 3)

    The examples of the methods continue from here.
    """

    def __init__(self, servers: Servers, name: str) -> None:
        self._servers = servers
        self._reader = Reader(servers, name)
        self._reader.fresh_shape()

    @property
    def name(self) -> str:
        """The table's name.

        >>> people.name
        'people'
        """
        return self._reader.name

    @property
    def live(self) -> bool:
        """Whether it is a live table, which takes writes; else it is a batch table.

        >>> people.live, clicks.live
        (False, True)
        """
        return self._reader.shape().version is None

    @property
    def kind(self) -> str:
        """What values are: `bytes`, `number` (int or float), `row` (dicts of columns) or `list`.

        >>> people.kind, clicks.kind
        ('row', 'number')
        """
        return self._reader.shape().kind

    @property
    def order(self) -> str:
        """How keys are arranged: `hashed`, or `ordered`, which has ranges.

        >>> people.order, clicks.order
        ('ordered', 'hashed')
        """
        return self._reader.shape().order

    @property
    def version(self) -> int | None:
        """The number of the version that serves now (int); None where the table is live.

        >>> people.version, clicks.version
        (1, None)
        """
        return self._reader.fresh_shape().version

    # Reads.

    def get_many(self, keys: Iterable[Any], default: Any = None) -> list[Any]:
        """The values of many keys as a list, in their order; `default` for each that is absent.

        `keys` is a list or whatever else can be looped over, or a column of NumPy, pandas, pyarrow
        or polars. Of a batch table all values are of one version, from however many servers they
        come. Raises what `get` raises, and TypeError for text or a data frame in place of keys.

        >>> people.get_many(["c", "x"])
        [{'id': 'c', 'name': 'Cyd', 'age': 19}, None]
        """
        wire_keys = self._reader.wire_keys(keys)
        if not wire_keys:
            return []
        shape, values = self._reader.read("MGET", wire_keys)
        return [default if value is None else shape.decode(value) for value in values]

    def get_many_arrow(
        self, keys: Iterable[Any], columns: Sequence[str] | None = None, *, binary: bool = False
    ) -> Any:
        """The values of many keys as a `pyarrow.Table`: a row for each key, in their order.

        `keys` are those of `get_many`. `columns` is a list of names (list[str]): those that the
        table has then, in that order, by default all that a scan has. All of a row is null where
        its key is absent; its `to_pandas` makes `Int64` and the like of whole numbers among nulls,
        not floats. With `binary` (bool) a column of keys is bytes, not text.

        Raises `UsageError` for a column that is not there and, without `binary`, for keys that are
        not UTF-8; TypeError for what holds no keys.

        >>> people.get_many_arrow(["c", "x"], columns=["name", "age"]).to_pydict()
        {'name': ['Cyd', None], 'age': [19, None]}
        """
        wire_keys = self._reader.wire_keys(keys)
        columns = None if columns is None else column_names(columns)
        schema, batches = self._reader.batches(wire_keys, columns, binary)
        arrow: Any = importlib.import_module("pyarrow")
        return for_pandas(arrow.Table.from_batches(batches, schema))

    def get(self, key: Key, default: Any = None) -> Any:
        """The value of a key, or `default` where the key is absent.

        `key` is str, bytes or a whole number, `default` any object. Raises TypeError for a key of
        another class, and `UsageError` for a value that Python's classes cannot hold (a timestamp
        with nanoseconds: `scan` reads it).

        >>> people.get("c"), people.get("x", "nobody")
        ({'id': 'c', 'name': 'Cyd', 'age': 19}, 'nobody')
        """
        shape, (value,) = self._reader.read("MGET", [self._reader.wire_key(key)])
        return default if value is None else shape.decode(value)

    def __getitem__(self, key: Key) -> Any:
        shape, (value,) = self._reader.read("MGET", [self._reader.wire_key(key)])
        if value is None:
            raise KeyError(key)
        return shape.decode(value)

    def __contains__(self, key: Key) -> bool:
        return self._reader.read("MGET", [self._reader.wire_key(key)])[1] != [None]

    def get_versioned(self, key: Key) -> Versioned:
        """A value (None: absent) and its key's version, as a `Versioned`, for `put_versioned`.

        `key` is that of `get`, and so is what is raised.

        >>> sessions.put("s1", "Ada")
        >>> sessions.get_versioned("s1").value
        b'Ada'
        """
        shape, ((version, value),) = self._reader.read("KV.GETV", [self._reader.wire_key(key)])
        return Versioned(shape.decode(value), version.decode())

    def ttl(self, key: Key) -> float | None:
        """For how many seconds more a key lasts (float); None: until it is deleted.

        `key` is that of `get`. Raises KeyError where it is absent, and TypeError for a key of
        another class.

        >>> sessions.put("s1", "Ada", ttl="1h")
        >>> 3590 < sessions.ttl("s1") <= 3600
        True
        """
        _, (left_ms,) = self._reader.read("PTTL", [self._reader.wire_key(key)])
        if left_ms == -2:
            raise KeyError(key)
        return None if left_ms == -1 else left_ms / 1000

    def scan(
        self,
        start: Key | None = None,
        end: Key | None = None,
        *,
        limit: int | None = None,
        reverse: bool = False,
        binary: bool = False,
        columns: Sequence[str] | None = None,
    ) -> RemoteScan:
        """The records from `start` to before `end` as a `RemoteScan`: an Arrow stream, and to loop
        over.

        `start` and `end` are keys; None is the table's first and past its last. `limit` (int) is
        how many records there are at most. With `reverse` (bool) they come from the last to the
        first, with `binary` (bool) keys are bytes, not text. `columns` (list[str]) names those of
        the stream, and of rows that are looped over.

        A batch table that is swapped meanwhile ends the scan with a `BusyError`; of a live table
        each part is of a moment of its own. Raises `UsageError` for a column that is not there;
        TypeError for a key of a wrong class. A hashed table has no order: a loop over its scan with
        `start`, `end` or `reverse` raises `UsageError`.

        >>> [key for key, row in people.scan("b")]
        ['b', 'c']
        >>> people.scan(limit=1, reverse=True, columns=["name"]).to_arrow().to_pylist()
        [{'name': 'Cyd'}]
        """
        low, high = (None if key is None else key_bytes(key) for key in (start, end))
        limit = None if limit is None else scan_limit(limit)
        if columns is not None:
            columns = column_names(columns)
            self._reader.fresh_shape().columns_of_scan(binary, columns)
        return RemoteScan(self._reader, Range(low, high, limit, reverse), binary, columns)

    def __len__(self) -> int:
        """How many records there are: all of them are read for that."""
        pages = self._reader.pages(self._reader.fresh_shape(), Range(None, None, None, False))
        return sum(len(page) for page in pages)

    # Writes.

    def _write(self, commands: Sequence[tuple[bytes, Command]]) -> list[Any]:
        hashed = self._reader.shape().hashed
        replies: list[Any] = []
        for begin in range(0, len(commands), _WRITES_AT_ONCE):
            part = commands[begin : begin + _WRITES_AT_ONCE]
            replies += self._servers.write(self.name, hashed, part)
        return replies

    def _encoded(self, value: Any) -> bytes:
        shape = self._reader.shape()
        if shape.version is not None:
            raise UsageError(
                f"table {self.name} is a batch table: forebay.push makes a new version of it"
            )
        encoded = shape.encode(value)
        if len(encoded) > _MOST_BYTES:
            raise UsageError(
                f"a value of {len(encoded):,} bytes for table {self.name}: servers take at most "
                f"16 MiB ({_MOST_BYTES:,} bytes)"
            )
        return encoded

    def _put(self, key: Key, value: Any, ttl: RemoteTtl | None) -> tuple[bytes, Command]:
        wire_key = self._reader.wire_key(key)
        return wire_key, ("SET", wire_key, self._encoded(value), *_lasting(ttl))

    def put(self, key: Key, value: Any, *, ttl: RemoteTtl | None = None) -> None:
        """Sets a key's value in a live table; it is as durable as the table promises then.

        `key` is str, bytes or a whole number; `value` is str, bytes or a number, as `kind` says.
        `ttl` is how long the key lasts: seconds (int or float), a timedelta, or text as in "12h";
        without it, as the table was made.

        Raises `UsageError` for a batch table, for one of rows or lists, and for a value or `ttl`
        that the table does not take; TypeError for a key or value of a wrong class;
        `NotWrittenError` where for certain nothing was written, and `UncertainError` where nobody
        knows.

        >>> sessions.put("s1", "Ada", ttl=3600)
        >>> sessions["s1"]
        b'Ada'
        """
        self._write([self._put(key, value, ttl)])

    def put_many(
        self, items: Mapping[Any, Any] | Iterable[tuple[Key, Any]], *, ttl: RemoteTtl | None = None
    ) -> int:
        """Sets many keys of a live table, each by itself; gives how many (int).

        `items` is a mapping, or pairs of key and value, to be looped over; keys, values and `ttl`,
        which is of all, are those of `put`. Raises what `put` raises; some of the keys may be set
        then.

        >>> clicks.put_many({"a": 1, "b": 2})
        2
        >>> clicks.get_many(["a", "b"])
        [1, 2]
        """
        pairs: Any = items
        if isinstance(items, Mapping):
            pairs = cast(Any, items).items()
        return len(self._write([self._put(*pair(item), ttl) for item in pairs]))

    def delta(self, key: Key, delta: Any) -> None:
        """Adds to a key's value in a live table, by the kind of deltas that it was made with.

        `key` is that of `put`; `delta` is a number, or bytes or str to be appended. An absent key
        gets it as its value. How long the key lasts is then as the table was made: no command of
        the servers sets both. Raises what `put` raises, and `UsageError` for a table that was made
        without deltas.

        >>> clicks.delta("page-7", 4)
        >>> clicks["page-7"]
        7
        """
        wire_key = self._reader.wire_key(key)
        self._write([(wire_key, ("KV.DELTA", wire_key, self._encoded(delta)))])

    def delete(self, key: Key) -> None:
        """Removes a key from a live table, whether it is there or not.

        `key` is that of `put`, and so is what is raised.

        >>> clicks.delete("page-7")
        >>> "page-7" in clicks
        False
        """
        wire_key = self._reader.wire_key(key)
        self._write([(wire_key, ("DEL", wire_key))])

    def put_versioned(
        self, key: Key, value: Any, version: str, *, ttl: RemoteTtl | None = None
    ) -> str | None:
        """Sets a value where its key still has this version; gives the new version (str), or None
        where it has another: nothing was written then.

        `key`, `value` and `ttl` are those of `put`, and so is what is raised; `version` (str) is of
        `get_versioned`. The version is of value and expiry: a value that was changed and changed
        back has the same one again.

        >>> seen = clicks.get_versioned("page-7")
        >>> clicks.put_versioned("page-7", seen.value + 1, seen.version) is not None
        True
        >>> clicks.put_versioned("page-7", 0, seen.version) is None
        True
        """
        wire_key = self._reader.wire_key(key)
        words = ("KV.SETV", wire_key, self._encoded(value), version, *_lasting(ttl))
        (reply,) = self._write([(wire_key, words)])
        return None if reply is None else reply.decode()

    def delete_versioned(self, key: Key, version: str) -> bool:
        """Removes a key where it still has this version; gives whether it did (bool).

        `key` and `version` are those of `put_versioned`, and so is what is raised.

        >>> clicks.delete_versioned("page-7", clicks.get_versioned("page-7").version)
        True
        """
        wire_key = self._reader.wire_key(key)
        return self._write([(wire_key, ("KV.DELV", wire_key, version))]) == [1]

    def __repr__(self) -> str:
        shape = self._reader.shape()
        what = "live" if shape.version is None else f"version {shape.version}"
        return f"<forebay table {self.name} of a server: {what}, {shape.order}, {shape.kind}>"


def _lasting(ttl: RemoteTtl | None) -> tuple[str | int, ...]:
    return () if ttl is None else ("PX", milliseconds(ttl))
