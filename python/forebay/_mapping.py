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


def _walked(view: Any) -> Walked:
    return cast(Walked, view._mapping)
