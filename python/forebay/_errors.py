"""What can go wrong: the words of the command line, as exceptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._push import PushResult


class Error(Exception):
    """Any failure. Nothing was changed unless the message says so.

    All that this package raises of its own is one. A key or value of a wrong class is a TypeError,
    an absent key a KeyError of `table[key]`.

    >>> try:
    ...     forebay.open("nowhere")
    ... except forebay.Error as error:
    ...     print(error)
    there is no forebay store at nowhere: ...
    """


class BusyError(Error):
    """Another command is at work on the table, or another process has it open: try again.

    Through servers: no server answered in time, or a scan met a swap.

    >>> opened = forebay.open(store, create=True)
    >>> clicks = opened.create("clicks", delta="i64")
    >>> forebay.open(store)["clicks"]
    Traceback (most recent call last):
        ...
    forebay.BusyError: ...
    """


class NotWrittenError(BusyError):
    """A server wrote nothing of a write, for certain, until the time for it was over: try again.

    Of `put_many` the message says how many were written.

    >>> issubclass(forebay.NotWrittenError, forebay.BusyError)
    True
    """


class MissingError(Error, LookupError):
    """There is no such store, table, version or file.

    >>> opened = forebay.open(store, create=True)
    >>> opened["none"]
    Traceback (most recent call last):
        ...
    forebay.MissingError: ...
    """


class UsageError(Error, ValueError):
    """An option, a key or a value is not one that the table or the command takes.

    >>> opened = forebay.open(store, create=True)
    >>> opened.create("clicks", durability="soon")
    Traceback (most recent call last):
        ...
    forebay.UsageError: ...
    """


class DataError(Error, ValueError):
    """The rows that came in cannot be stored.

    The message has their file or data, their place and the reason.

    >>> rows = [{"id": 1}, {"id": None}]
    >>> forebay.push(rows, "ids", key="{id}", store=store)
    Traceback (most recent call last):
        ...
    forebay.DataError: ...
    """


class DamagedError(Error):
    """What is stored is damaged.

    The message has the file. `Table.rollback` goes back to the version before.

    >>> issubclass(forebay.DamagedError, forebay.Error)
    True
    """


class UncertainError(Error):
    """A write was sent to a server and may or may not have been carried out; it was not sent again.

    Read what is there before you send it again.

    >>> issubclass(forebay.UncertainError, forebay.BusyError)
    False
    """


class GateHeld(Error):
    """The version was built and is kept, but it differs too much from the one that serves.

    `result` (`PushResult`) says what was built; `Table.swap` lets it serve all the same.

    >>> opened = forebay.open(store, create=True)
    >>> opened.push([{"id": n} for n in range(9)], "ids", key="{id}").version
    1
    >>> try:
    ...     opened.push([{"id": 1}], "ids", key="{id}")
    ... except forebay.GateHeld as held:
    ...     print(held.result.version, held.result.swapped)
    2 False
    >>> opened["ids"].swap(2).version
    2
    """

    def __init__(self, message: str, result: PushResult) -> None:
        super().__init__(message)
        self.result = result

    def __reduce__(self) -> tuple[type[GateHeld], tuple[str, PushResult]]:
        return GateHeld, (str(self), self.result)


# They show under the name by which they are caught.
for _class in (
    *(Error, BusyError, MissingError, UsageError, DataError, DamagedError),
    *(NotWrittenError, UncertainError, GateHeld),
):
    _class.__module__ = "forebay"
