"""What tables have as a whole: views of keys, values and records as of a mapping, and frames."""

from __future__ import annotations

import re
from collections.abc import Generator, ItemsView, Iterator, KeysView, Sequence, ValuesView
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, cast

from ._errors import Error, UsageError

if TYPE_CHECKING:
    import pandas as pd  # pyright: ignore[reportMissingTypeStubs]
    import polars as pl

_NOT_UTF8 = re.compile(r"the text of the key '(.*)' is not UTF-8")


class Walked(Protocol):
    """What the views are of."""

    def scan(self, *, columns: Sequence[str] | None = None) -> Any: ...
    def __len__(self) -> int: ...


class Keys(KeysView[str]):
    """The keys of a table, in its order."""

    def __iter__(self) -> Iterator[str]:
        # Without their values.
        return (key for key, _ in _walked(self).scan(columns=()))


class Values(ValuesView[Any]):
    """The values of a table, in the order of its keys."""

    def __iter__(self) -> Iterator[Any]:
        return (value for _, value in _walked(self).scan())

    def __contains__(self, value: object) -> bool:
        return any(one == value for one in self)


class Items(ItemsView[str, Any]):
    """The keys and values of a table, in its order."""

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(_walked(self).scan())


class Mapped:
    """What `Table` and `RemoteTable` have as a whole, by their scan and their length."""

    def keys(self) -> Keys:
        """A view of the keys (str), in the table's order, as a dict has one.

        >>> list(people.keys()), people.keys() & {"a", "x"}
        (['a', 'b', 'c'], {'a'})
        """
        return Keys(cast(Any, self))

    def values(self) -> Values:
        """A view of the values, in the order of their keys.

        >>> [row["name"] for row in people.values()]
        ['Ada', 'Bob', 'Cyd']
        """
        return Values(cast(Any, self))

    def items(self) -> Items:
        """A view of the pairs of key and value, in the table's order.

        >>> dict(people.items())["c"]["name"]
        'Cyd'
        """
        return Items(cast(Any, self))

    def __array__(self, *_: Any, **__: Any) -> Any:
        # pandas and NumPy would make one of keys alone, in silence.
        raise TypeError(
            "a table is no array: table.to_pandas() is a data frame, table.to_arrow() and "
            "table.to_polars() others"
        )

    @property
    def schema(self) -> Any:
        """The columns of a scan as a `pyarrow.Schema`.

        The key is one of its own unless the columns of its template are there.

        >>> people.schema.names, clicks.schema.names
        (['id', 'name', 'age'], ['key', 'value'])
        """
        return cast(Any, self).scan().schema

    def to_arrow(self) -> Any:
        """All records as a `pyarrow.Table`, in the table's order: `scan` with its columns.

        Raises `UsageError` for keys that are not UTF-8 (`scan(binary=True)` has them as bytes);
        `DamagedError` for what is damaged.

        >>> people.to_arrow()["name"].to_pylist()
        ['Ada', 'Bob', 'Cyd']
        """
        with _keys_told():
            return cast(Any, self).scan().to_arrow()

    def to_pandas(self) -> pd.DataFrame:
        """All records as a `pandas.DataFrame`, made by pyarrow; raises what `to_arrow` raises.

        Whole numbers and truth values among nulls are of pandas' own types, as `Int64` and
        `boolean`: as floats numbers would be rounded.

        >>> people.to_pandas()["age"].tolist()
        [36, 41, 19]
        """
        with _keys_told():
            return cast(Any, self).scan().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """All records as a `polars.DataFrame`; raises what `to_arrow` raises, of polars.

        >>> people.to_polars()["age"].max()
        41
        """
        with _keys_told():
            return cast(Any, self).scan().to_polars()

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __bool__(self) -> bool:
        return any(True for _ in cast(Any, self).scan(limit=1, binary=True))


@contextmanager
def _keys_told() -> Generator[None]:
    """Through Arrow's interface an error arrives as a text, in the words of an export."""
    try:
        yield
    except Exception as error:
        found = _NOT_UTF8.search(str(error))
        if isinstance(error, Error) or found is None:
            raise
        message = f"the key {found[1]} is not UTF-8: scan(binary=True) has keys as bytes"
        raise UsageError(message) from None


def _walked(view: Any) -> Walked:
    return cast(Walked, view._mapping)
