"""A slow, exact model of docs/reference/conversions.md.

Tests compare the binary and the Python package with it.

Types are pyarrow's. Values are Python's, without loss: int, bool, str, bytes, and float for all
floats. Decimals are Fractions. Dates, times, timestamps and durations are the integers that Arrow
stores. An interval is a tuple of months, days and nanoseconds. A list is a list, a struct a dict,
and a map a list of pairs. Null is None.
"""


class Bad(Exception):
    """The value cannot be stored exactly, so its row is a bad row."""


class Refused(Exception):
    """The types do not convert, so the push is refused before it reads any row."""
