"""`forebay.connect`: tables of a server or a cluster, by the Redis protocol."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, NamedTuple, Self, cast

from ._errors import UsageError
from ._forebay import key_bytes
from ._mapping import Mapped
from ._remote_reads import Range, Reader
from ._remote_values import Key, key_text, milliseconds
from ._servers import Servers
from ._wire import Command, Place

RemoteTtl = float | timedelta

# Writes that are sent together.
_WRITES_AT_ONCE = 500


def connect(
    url: str,
    *,
    timeout: float = 10.0,
    ca_file: str | None = None,
    certificate_file: str | None = None,
    key_file: str | None = None,
) -> Connection:
    """Connects to a server, or to some nodes of a cluster: `redis://host:port,host:port`.

    `rediss://` is TLS, with the certificates of `ca_file` (by default the system's); a user and a
    password stand before the hosts, percent-encoded: `redis://user:password@host`. The port is 7379
    where none is given. `timeout` is how many seconds an answer is waited for, and for how long a
    call goes on to try. It needs no store at hand, and the package redis: `pip install
    'forebay[redis]'`. Nobody is asked before the first call for a table.
    """
    tls = {"ca_certs": ca_file, "certfile": certificate_file, "keyfile": key_file}
    return Connection(Servers(Place.parse(url), timeout, tls))


class Versioned(NamedTuple):
    """A value, and the version of its key, by which it is compared and set."""

    value: Any
    version: str


class Connection:
    """A server or a cluster: `connection["people"]` is a table.

    It is a context manager, and may be used by several threads.
    """

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    def __getitem__(self, table: str) -> RemoteTable:
        return RemoteTable(self._servers, table)

    def close(self) -> None:
        """Ends its connections; another call makes new ones."""
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
    """A table that a server has. Each call reads what serves then, or writes a live table.

    Values and keys are those of `forebay.Table`.
    """

    def __init__(self, servers: Servers, name: str) -> None:
        self._servers = servers
        self._reader = Reader(servers, name)
        self._reader.fresh_shape()

    @property
    def name(self) -> str:
        return self._reader.name

    @property
    def live(self) -> bool:
        return self._reader.shape().version is None

    @property
    def kind(self) -> str:
        """What values are: `bytes`, `number`, `row` or `list`."""
        return self._reader.shape().kind

    @property
    def order(self) -> str:
        """`hashed` or `ordered`."""
        return self._reader.shape().order

    @property
    def version(self) -> int | None:
        """The version that serves now; None where the table is live."""
        return self._reader.fresh_shape().version

    # Reads.

    def get_many(self, keys: Iterable[Any], default: Any = None) -> list[Any]:
        """The values of many keys, in their order; `default` for one that is absent.

        The keys are a list, or a column of NumPy, pandas, pyarrow or polars. Of a batch table all
        values are of one version."""
        wire_keys = self._reader.wire_keys(keys)
        if not wire_keys:
            return []
        shape, values = self._reader.read("MGET", wire_keys)
        return [default if value is None else shape.decode(value) for value in values]

    def get(self, key: Key, default: Any = None) -> Any:
        """The value of a key; `default` where it is absent."""
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
        """A value (None: absent) and its key's version, for `put_versioned`."""
        shape, ((version, value),) = self._reader.read("KV.GETV", [self._reader.wire_key(key)])
        return Versioned(shape.decode(value), version.decode())

    def scan(
        self,
        start: Key | None = None,
        end: Key | None = None,
        *,
        limit: int | None = None,
        reverse: bool = False,
        binary: bool = False,
    ) -> RemoteScan:
        """The records from `start` to before `end`, as an Arrow stream, and to loop over.

        Only ordered tables have ranges, and an order to reverse. A batch table that is swapped
        meanwhile ends the scan with an error; of a live table each part is of a moment of its own.
        """
        low, high = (None if key is None else key_bytes(key) for key in (start, end))
        return RemoteScan(self._reader, Range(low, high, limit, reverse), binary)

    def __len__(self) -> int:
        """How many records there are: all of them are read for that."""
        return sum(1 for _ in self.scan(binary=True))

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
        return shape.encode(value)

    def _put(self, key: Key, value: Any, ttl: RemoteTtl | None) -> tuple[bytes, Command]:
        wire_key = self._reader.wire_key(key)
        return wire_key, ("SET", wire_key, self._encoded(value), *_lasting(ttl))

    def put(self, key: Key, value: Any, *, ttl: RemoteTtl | None = None) -> None:
        """Sets a key's value in a live table; durable when it returns, as the table promises."""
        self._write([self._put(key, value, ttl)])

    def put_many(
        self, items: Mapping[Any, Any] | Iterable[tuple[Key, Any]], *, ttl: RemoteTtl | None = None
    ) -> int:
        """Sets many keys, each by itself; gives how many. An error may leave some of them set."""
        pairs: Any = items
        if isinstance(items, Mapping):
            pairs = cast(Any, items).items()
        return len(self._write([self._put(key, value, ttl) for key, value in pairs]))

    def delta(self, key: Key, delta: Any) -> None:
        """Adds to a key's value, by the table's kind of deltas."""
        wire_key = self._reader.wire_key(key)
        self._write([(wire_key, ("KV.DELTA", wire_key, self._encoded(delta)))])

    def delete(self, key: Key) -> None:
        """Removes a key."""
        wire_key = self._reader.wire_key(key)
        self._write([(wire_key, ("DEL", wire_key))])

    def put_versioned(
        self, key: Key, value: Any, version: str, *, ttl: RemoteTtl | None = None
    ) -> str | None:
        """Sets a value where its key still has this version; gives the new one, or None: it has
        another. A value that was changed and changed back has the same version again."""
        wire_key = self._reader.wire_key(key)
        words = ("KV.SETV", wire_key, self._encoded(value), version, *_lasting(ttl))
        (reply,) = self._write([(wire_key, words)])
        return None if reply is None else reply.decode()

    def delete_versioned(self, key: Key, version: str) -> bool:
        """Removes a key where it still has this version; gives whether it did."""
        wire_key = self._reader.wire_key(key)
        return self._write([(wire_key, ("KV.DELV", wire_key, version))]) == [1]

    def __repr__(self) -> str:
        shape = self._reader.shape()
        what = "live" if shape.version is None else f"version {shape.version}"
        return f"<forebay table {self.name} of a server: {what}, {shape.order}, {shape.kind}>"


def _lasting(ttl: RemoteTtl | None) -> tuple[str | int, ...]:
    return () if ttl is None else ("PX", milliseconds(ttl))


class RemoteScan:
    """A range of a table of servers, to be gone through any number of times.

    It is an Arrow stream (`pyarrow.table(scan)`, `polars.DataFrame(scan)`), and pairs of key and
    value to loop over.
    """

    def __init__(self, reader: Reader, span: Range, binary: bool) -> None:
        self._reader, self._span, self._binary = reader, span, binary

    def reader(self) -> Any:
        """A `pyarrow.RecordBatchReader`, whose batches come from the servers one by one."""
        shape = self._reader.fresh_shape()
        layout = shape.layout(self._binary)
        pages = self._reader.pages(shape, self._span)
        batches = (layout.batch(page) for page in pages)
        readers: Any = importlib.import_module("pyarrow").RecordBatchReader
        return readers.from_batches(layout.schema, batches)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.reader().__arrow_c_stream__()

    def __arrow_c_schema__(self) -> object:
        return self._reader.shape().layout(self._binary).schema.__arrow_c_schema__()

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        shape = self._reader.fresh_shape()
        for page in self._reader.pages(shape, self._span):
            for key, value in page:
                yield key if self._binary else key_text(key), shape.decode(value)
