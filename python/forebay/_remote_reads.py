"""Reading a table of servers so that no reply is taken for what it is not.

Each exchange has KV.SCHEMA before and after its commands: what is between is of the version and
the schema that it reports, so values are never read with the types of another version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ._errors import BusyError, Error, MissingError, UsageError
from ._forebay import all_key_bytes, key_bytes
from ._remote_values import Key, Layout, Shape
from ._servers import Again, Class, Servers
from ._wire import Address, Broken, Command, Unreached, failure

# Keys that one command asks for.
_KEYS_AT_ONCE = 500
# Records that a part of a scan has at most.
_PAGE_RECORDS = 4000

Record = tuple[bytes, bytes]


class Range(NamedTuple):
    """What a scan goes through."""

    start: bytes | None
    end: bytes | None
    limit: int | None
    reverse: bool


class Swapped(Again):
    """Replies are of another version than was expected."""


class TooMuch(Exception):
    """A reply would have been larger than the server sends."""


class Reader:
    """The reads of one table."""

    def __init__(self, servers: Servers, name: str) -> None:
        self.servers, self.name = servers, name
        self.prefix = name.encode() + b":"
        self._known: Shape | None = None
        # What says of which version and schema the replies beside it are.
        self._mark: Command = ("KV.SCHEMA", name)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Reader, (self.servers, self.name))

    def wire_key(self, key: Key) -> bytes:
        return self.prefix + key_bytes(key)

    def wire_keys(self, keys: Iterable[Any]) -> list[bytes]:
        return [self.prefix + key for key in all_key_bytes(keys)]

    def shape(self) -> Shape:
        """What was known last."""
        return self._known or self.fresh_shape()

    def fresh_shape(self) -> Shape:
        problem: Exception | None = None
        for _ in self.servers.tries():
            try:
                text = self.servers.ask_any(self._mark)
                if self._known is None or self._known.text != text:
                    self._known = Shape(text)
                return self._known
            except Unreached as error:
                problem = error
        raise BusyError(f"table {self.name}: {problem}")

    def _marked(
        self, shape: Shape, holders: Sequence[Address], commands: Sequence[Command]
    ) -> list[Any]:
        """Replies of this version and schema."""
        marked = [self._mark, *commands, self._mark]
        replies = self.servers.try_read(list(holders), marked, led=shape.version is None)
        for reply in replies:
            if self.servers.wire.is_error(reply):
                if "ask for less at a time" in str(reply):
                    raise TooMuch
                raise failure(reply)
        if replies[0] != shape.text or replies[-1] != shape.text:
            self._known = None
            raise Swapped(f"table {self.name} was swapped meanwhile")
        return replies[1:-1]

    # Keys.

    def read(self, name: str, keys: Sequence[bytes]) -> tuple[Shape, list[Any]]:
        """What a command replies to each of some wire keys, all of one version."""
        problem: Exception | None = None
        for _ in self.servers.tries():
            try:
                shape = self.shape()
                return shape, self.read_once(shape, name, keys)
            except (Again, Unreached, Broken) as error:
                problem = error
                self.servers.forget(self.name)
        raise BusyError(f"table {self.name}: {problem}")

    def read_once(self, shape: Shape, name: str, keys: Sequence[bytes]) -> list[Any]:
        routes = self.servers.routes(self.name, shape.hashed)
        groups: dict[tuple[Address, ...], list[int]] = {}
        for place, key in enumerate(keys):
            groups.setdefault(tuple(routes.holders(key)), []).append(place)
        values: list[Any] = [None] * len(keys)
        for holders, places in groups.items():
            found = self._values(shape, holders, name, [keys[place] for place in places])
            for place, value in zip(places, found, strict=True):
                values[place] = value
        return values

    def _values(
        self, shape: Shape, holders: Sequence[Address], name: str, keys: list[bytes]
    ) -> list[Any]:
        """Of keys that the same servers have. Large values are asked for a few at a time."""
        if name != "MGET":
            return self._marked(shape, holders, [(name, key) for key in keys])
        values: list[Any] = []
        at_once = _KEYS_AT_ONCE
        while len(values) < len(keys):
            part = keys[len(values) : len(values) + at_once]
            try:
                values += self._marked(shape, holders, [(name, *part)])[0]
            except TooMuch:
                if at_once == 1:
                    raise Error("a value is larger than the server's replies may be") from None
                at_once = max(at_once // 8, 1)
        return values

    def batches(
        self, keys: Sequence[bytes], columns: Sequence[str] | None, binary: bool
    ) -> tuple[Any, list[Any]]:
        """A row for each wire key, as a schema and record batches of pyarrow."""
        shape, values = self.read("MGET", keys) if keys else (self.fresh_shape(), [])
        layout = Layout(shape, binary, columns, looked_up=True)
        size = len(self.prefix)
        records = [(key[size:], value) for key, value in zip(keys, values, strict=True)]
        parts = range(0, len(records), _PAGE_RECORDS)
        return layout.schema, [layout.batch(records[at : at + _PAGE_RECORDS]) for at in parts]

    # Scans.

    def pages(self, shape: Shape, span: Range) -> Iterator[list[Record]]:
        """The records of a range, some at a time; all are of the version of `shape`."""
        pages = self._hashed_pages(shape) if shape.hashed else self._ordered_pages(shape, span)
        if shape.hashed and (span.start is not None or span.end is not None or span.reverse):
            raise UsageError(
                f"table {self.name} is hashed: it is scanned whole, and has no order to reverse"
            )
        left = span.limit
        if left is not None and left <= 0:
            return
        for page in pages:
            if left is not None:
                page = page[:left]
                left -= len(page)
            if page:
                yield page
            if left == 0:
                return

    def _part(self, shape: Shape, holders: Sequence[Address], command: Command) -> Any:
        """The reply to a part of a scan, which is tried again but never of another version."""
        problem: Exception | None = None
        for _ in self.servers.tries():
            try:
                return self._marked(shape, holders, [command])[0]
            except Swapped:
                raise self._swapped() from None
            except Again as error:
                problem = error
        raise BusyError(f"the scan of table {self.name} did not finish: {problem}")

    def _swapped(self) -> BusyError:
        return BusyError(f"table {self.name} was swapped while it was scanned: scan it again")

    def _ordered_pages(self, shape: Shape, span: Range) -> Iterator[list[Record]]:
        if span.end == b"":
            return
        low = self.prefix if span.start is None else b"[" + self.prefix + span.start
        high = b"+" if span.end is None else b"(" + self.prefix + span.end
        order = ("REV",) if span.reverse else ()
        size = len(self.prefix)
        while True:
            count = min(_PAGE_RECORDS, span.limit or _PAGE_RECORDS)
            command = ("KV.RANGE", low, high, "LIMIT", count, *order)
            holders = self.servers.routes(self.name, hashed=False).all()
            rest, items = self._part(shape, holders, command)
            yield [(key[size:], value) for key, value in zip(items[::2], items[1::2], strict=True)]
            if rest is None:
                return
            low, high = (low, rest) if span.reverse else (rest, high)

    def _hashed_pages(self, shape: Shape) -> Iterator[list[Record]]:
        classes = self._classes()
        for one in classes or [None]:
            cursor = b"0"
            while True:
                cursor, keys = self._scanned(shape, one, cursor)
                if keys:
                    yield self._with_values(shape, keys)
                if cursor == b"0":
                    break
        if classes != self._classes():
            raise BusyError("the cluster's nodes changed during the scan: scan again")
        if self.fresh_shape().text != shape.text:
            raise self._swapped()

    def _classes(self) -> list[Class] | None:
        try:
            return self.servers.classes()
        except Unreached as error:
            raise BusyError(str(error)) from None

    def _scanned(self, shape: Shape, one: Class | None, cursor: bytes) -> tuple[bytes, Any]:
        command = ("SCAN", cursor, "MATCH", self.prefix + b"*", "COUNT", _PAGE_RECORDS)
        if one is None:
            return self._part(shape, self.servers.routes(self.name, True).all(), command)
        try:
            return self._part(shape, [one.address], command)
        except MissingError:
            # A node may head slots of which other nodes have this table's keys.
            (reply,) = self.servers.try_read([one.address], [command])
            return reply

    def _with_values(self, shape: Shape, keys: list[bytes]) -> list[Record]:
        problem: Exception | None = None
        for _ in self.servers.tries():
            try:
                values = self.read_once(shape, "MGET", keys)
            except Swapped:
                raise self._swapped() from None
            except (Again, Unreached, Broken) as error:
                problem = error
                self.servers.forget(self.name)
                continue
            size = len(self.prefix)
            pairs = zip(keys, values, strict=True)
            return [(key[size:], value) for key, value in pairs if value is not None]
        raise BusyError(f"the scan of table {self.name} did not finish: {problem}")
