"""What tables have as mappings: views of their keys, values and records."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from typing import Any, Protocol, cast


class Walked(Protocol):
    """What the views are of."""

    def scan(self) -> Any: ...
    def __len__(self) -> int: ...


class Keys(KeysView[str]):
    """The keys of a table, in its order."""

    def __iter__(self) -> Iterator[str]:
        return (key for key, _ in _walked(self).scan())


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
    """The views of a table that has a scan and a length."""

    def keys(self) -> Keys:
        """The keys, in the table's order."""
        return Keys(cast(Any, self))

    def values(self) -> Values:
        """The values, in the order of their keys."""
        return Values(cast(Any, self))

    def items(self) -> Items:
        """Keys and values, in the table's order."""
        return Items(cast(Any, self))

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __bool__(self) -> bool:
        return any(True for _ in cast(Any, self).scan(limit=1, binary=True))


def _walked(view: Any) -> Walked:
    return cast(Walked, view._mapping)
