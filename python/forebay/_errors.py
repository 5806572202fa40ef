"""What can go wrong: the words of the command line, as exceptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._push import PushResult


class Error(Exception):
    """Any failure. Nothing was changed unless the message says so."""


class BusyError(Error):
    """Another command is at work on the table, or another process has it open: try again."""


class NotWrittenError(BusyError):
    """A server wrote nothing of a write, for certain, until the time for it was over: try again."""


class MissingError(Error, LookupError):
    """There is no such store, table, version or file."""


class UsageError(Error, ValueError):
    """An option, a key or a value is none that the table or the command takes."""


class DataError(Error, ValueError):
    """The rows that came in cannot be stored."""


class DamagedError(Error):
    """What is stored is damaged."""


class UncertainError(Error):
    """A write was sent to a server and may have been carried out, or not; it was not sent again."""


class GateHeld(Error):
    """The version was built and is kept, but it differs too much from the one that serves.

    `result` says what was built; `Table.swap` lets it serve all the same.
    """

    def __init__(self, message: str, result: PushResult) -> None:
        super().__init__(message)
        self.result = result


# They show under the name by which they are caught.
for _class in (
    *(Error, BusyError, MissingError, UsageError, DataError, DamagedError),
    *(NotWrittenError, UncertainError, GateHeld),
):
    _class.__module__ = "forebay"
