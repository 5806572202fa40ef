"""A slow, exact model of docs/reference/conversions.md.

Tests compare the binary and the Python package with it.

Types are pyarrow's. Values are Python's, without loss: int, bool, str, bytes; float for all floats;
Fraction for decimals; dates, times, timestamps and durations are the integers that Arrow stores; an
interval is a tuple of months, days and nanoseconds; a list is a list, a struct a dict, a map a list
of pairs, null None.
"""


class Bad(Exception):
    """The value does not arrive exactly: its row is a bad row."""


class Refused(Exception):
    """The types do not convert: the push is refused before anything is read."""
