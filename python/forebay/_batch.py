"""`Table.batch`: operations on a live table that take effect together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from ._errors import UsageError

Key = str | bytes | int
Ttl = float | timedelta | str


def pair(item: Any) -> tuple[Any, Any]:
    """A key and what is written there; a text of two letters is no such pair."""
    if isinstance(item, str | bytes) or not hasattr(item, "__len__") or len(item) != 2:
        raise TypeError(f"{item!r} is no pair of a key and a value")
    key, value = item
    return key, value


Write = tuple[str, Key, Any, Ttl | None]


class Batch:
    """Operations on a live table that are done all at once, or not at all; `Table.batch` gives it.

    Nothing is written before the `with` block ends; where it ends with an exception, nothing is.
    The keys must be in one partition, as those with the same hashtag do. A table reads none of it
    meanwhile.

    >>> opened = forebay.open(store, create=True)
    >>> carts = opened.create("carts", value="row", column={"n": "int64"})
    >>> with carts.batch() as batch:
    ...     batch.put("{u1}:lamp", {"n": 2})
    ...     batch.delete("{u1}:sofa")
    >>> carts.get_many(["{u1}:lamp", "{u1}:sofa"])
    [{'n': 2}, None]
    >>> counts = opened.create("counts", delta="i64")

    The examples of the methods continue from here.
    """

    def __init__(self, write: Callable[[list[Write]], int]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._writes: list[Write] | None = []

    def _add(self, verb: str, key: Key, value: Any = None, ttl: Ttl | None = None) -> None:
        with self._lock:
            if self._writes is None:
                raise UsageError("the batch was written already: begin another one")
            self._writes.append((verb, key, value, ttl))

    def put(self, key: Key, value: Any, *, ttl: Ttl | None = None) -> None:
        """Sets a key's value; `key`, `value` and `ttl` are those of `Table.put`.

        Raises `UsageError` where the batch was written already. What is wrong with `key`, `value`
        or `ttl` is raised when it is written.

        >>> with carts.batch() as batch:
        ...     batch.put("{u2}:desk", {"n": 1})
        >>> carts["{u2}:desk"]
        {'n': 1}
        """
        self._add("put", key, value, ttl)

    def insert(self, key: Key, value: Any, *, ttl: Ttl | None = None) -> None:
        """Sets a key's value if the key is absent; `key`, `value` and `ttl` are those of `put`.

        Raises what `put` raises.

        >>> with carts.batch() as batch:
        ...     batch.insert("{u1}:lamp", {"n": 9})
        >>> carts["{u1}:lamp"]
        {'n': 2}
        """
        self._add("insert", key, value, ttl)

    def delta(self, key: Key, delta: Any, *, ttl: Ttl | None = None) -> None:
        """Adds to a key's value; `key`, `delta` and `ttl` are those of `Table.delta`.

        Raises what `put` raises.

        >>> with counts.batch() as batch:
        ...     batch.delta("{u1}:seen", 1)
        ...     batch.delta("{u1}:seen", 2)
        >>> counts["{u1}:seen"]
        3
        """
        self._add("delta", key, delta, ttl)

    def delete(self, key: Key) -> None:
        """Removes a key; `key` is str, bytes or a whole number. Raises what `put` raises.

        >>> with carts.batch() as batch:
        ...     batch.delete("{u1}:lamp")
        >>> "{u1}:lamp" in carts
        False
        """
        self._add("delete", key)

    def write(self) -> int:
        """Writes them, and waits until they are as durable as the table promises; gives how many
        there are. The end of a `with` block does it.

        Raises `UsageError` if the batch was written already, or its keys are in several partitions;
        also for a value or `ttl` that the table does not take; TypeError for a key or value of a
        wrong class. Nothing is written then.

        >>> batch = carts.batch()
        >>> batch.delete("{u1}:lamp")
        >>> batch.write()
        1
        """
        with self._lock:
            writes, self._writes = self._writes, None
        if writes is None:
            raise UsageError("the batch was written already: begin another one")
        return self._write(writes) if writes else 0

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
