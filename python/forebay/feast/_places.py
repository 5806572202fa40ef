"""Where tables are: a store that this process opens, or servers that have it open."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from feast.repo_config import RepoConfig

from .._command import run
from .._errors import BusyError, MissingError, UsageError
from .._remote import Connection, connect
from .._store import Store, Table
from .._store import open as open_store
from ._config import ForebayOnlineStoreConfig
from ._names import LIVE

Key = str | bytes

# How long a new live table is waited for.
_TRIES, _PAUSE_S = 50, 0.1
_TRIES_TO_SEE = 20


class Readable(Protocol):
    """A table, here or at servers."""

    def get_many(self, keys: Any, default: Any = None) -> list[Any]: ...


class Writable(Readable, Protocol):
    def put_many(self, items: Any, *, ttl: float | None = None) -> int: ...


_T = TypeVar("_T", bound=Readable)


class _Handles(Generic[_T]):
    """Tables by name, looked after again once in a while; absent ones are remembered, too."""

    def __init__(self, find: Callable[[str, _T | None], _T], refresh_s: float) -> None:
        self._find, self._refresh_s = find, refresh_s
        self._held: dict[str, tuple[_T | None, float]] = {}

    def get(self, name: str) -> _T | None:
        now = time.monotonic()
        held, until = self._held.get(name, (None, 0.0))
        if now < until:
            return held
        found: _T | None
        try:
            found = self._find(name, held)
        except MissingError:
            found = None
        self._held[name] = found, now + self._refresh_s
        return found

    def forget(self, name: str) -> None:
        self._held.pop(name, None)


class Place:
    """The tables that one configuration names."""

    def __init__(self, store: str | None, config: ForebayOnlineStoreConfig) -> None:
        self.store = store
        self.lock = threading.Lock()
        """Held while rows of live tables are compared and written."""
        self._config = config
        self._opening = threading.Lock()
        self._making = threading.Lock()
        self._opened: Store | None = None
        self._connection: Connection | None = None
        if config.connection is not None:
            self._connection = connect(
                config.connection,
                timeout=config.timeout_seconds,
                ca_file=config.ca_file,
                certificate_file=config.certificate_file,
                key_file=config.key_file,
            )
        self._batch: _Handles[Any] = _Handles(self._find, config.refresh_seconds)
        self._live: _Handles[Any] = _Handles(self._find_live, config.refresh_seconds)

    # Reading.

    def batch(self, name: str) -> Readable | None:
        """The version of a batch table that serves, or None where nothing was materialised."""
        self._see_store()
        return self._batch.get(name)

    def live(self, name: str) -> Writable | None:
        """The live table beside it, or None where nothing was written to it."""
        if self._config.read_only:
            return None
        self._see_store()
        return self._live.get(name + LIVE)

    def _see_store(self) -> None:
        """Where there is no store nothing can be said of its tables."""
        if self._connection is None:
            self.own()

    def _find(self, name: str, held: Any) -> Any:
        if isinstance(held, Table):
            held.refresh()
            return held
        return self._tables()[name]

    def _find_live(self, name: str, held: Any) -> Any:
        # Nobody else can drop or change what is open here.
        if isinstance(held, Table):
            return held
        if self._connection is not None:
            return self._served(self._connection, name)
        try:
            return self._tables()[name]
        except BusyError as error:
            raise BusyError(
                f"{error}. A live table is open in one process alone: let `forebay serve` have the "
                "store and set online_store.connection, or set online_store.read_only where only "
                "what was materialised is read"
            ) from error

    def _served(self, connection: Connection, name: str) -> Any:
        """A live table of the servers. One that they do not have, and the store does, is open in
        another process: what was written there must not be passed over."""
        for _ in range(_TRIES_TO_SEE):
            try:
                return connection[name]
            except MissingError:
                if not self._is_in_directory(name):
                    raise
            # Just made: servers see it after up to a second.
            time.sleep(_PAUSE_S)
        raise BusyError(
            f"the servers do not serve the live table {name}, which {self.store} has: another "
            "process has it open. End that one, or have it go through the servers, too"
        )

    def _is_in_directory(self, name: str) -> bool:
        if self.store is None or "://" in self.store:
            return False
        try:
            return name in self.own()
        except MissingError:
            return False

    def _tables(self) -> Connection | Store:
        return self._connection or self.own()

    def own(self, create: bool = False) -> Store:
        """The store itself."""
        with self._opening:
            if self._opened is None:
                try:
                    self._opened = _take_store(self.url(), create, self._config.memory_bytes)
                except MissingError as error:
                    raise MissingError(
                        f"{error}; `feast apply` makes it where online_store.store says"
                    ) from error
            return self._opened

    def url(self) -> str:
        """The store's directory or URL."""
        if self.store is None:
            raise UsageError(
                "online_store has no store, which a materialisation is pushed into: set "
                "online_store.store to the directory or URL that the servers at "
                f"{self._config.connection} serve"
            )
        return self.store

    # Writing.

    def writable(self, name: str) -> Writable:
        """The live table beside a batch table, made where there is none."""
        if self._config.read_only:
            raise UsageError(
                f"online_store.read_only is set, so that nothing can be written to {name}: "
                "materialise with batch_engine forebay.feast.ForebayEngine, or write elsewhere"
            )
        table = self.live(name)
        if table is not None:
            return table
        with self._making:
            return self._made(name)

    def _made(self, name: str) -> Writable:
        """Makes it, and waits until it can be written: servers see it after up to a second."""
        problem: Exception | None = None
        for number in range(_TRIES):
            self._live.forget(name + LIVE)
            table = self.live(name)
            if table is not None:
                return table
            if number == 0:
                try:
                    self.create_live(name)
                    continue
                except BusyError as error:
                    # Another process makes it just now.
                    problem = error
            time.sleep(_PAUSE_S)
        raise problem or BusyError(
            f"the live table {name}{LIVE} was created, and no server serves it yet: try again"
        )

    def create_live(self, name: str) -> None:
        """Makes the live table beside a batch table where there is none, without opening it."""
        if self._connection is not None and self.store is None:
            raise MissingError(
                f"the servers have no live table {name}{LIVE}: make it there by `forebay create "
                f"{name}{LIVE}`, or set online_store.store so that `feast apply` does"
            )
        if name + LIVE not in self.own(create=True):
            run("create", [name + LIVE], {"durability": self._config.durability}, self.url())

    def prepare(self, names: Iterable[str]) -> None:
        """Makes the store, and the live tables that servers are to serve."""
        if self.store is None or self._config.read_only:
            return
        self.own(create=True)
        if self._connection is not None:
            for name in names:
                self.create_live(name)

    def drop(self, is_gone: Callable[[str], bool]) -> None:
        """Drops the tables of these names, and the live tables beside them."""
        if self.store is None:
            return
        try:
            store = self.own()
        except MissingError:
            return
        for table in [table.table for table in store.tables()]:
            if is_gone(table.removesuffix(LIVE)):
                self._batch.forget(table)
                self._live.forget(table)
                store.drop(table)

    def changed(self, name: str) -> None:
        """Has the next read look for another version."""
        self._batch.forget(name)

    def close(self) -> None:
        with self._opening:
            if self._opened is not None:
                self._opened = None
                _leave_store(self.url())
        if self._connection is not None:
            self._connection.close()


def _is_url(store: str) -> bool:
    return "://" in store


# A live table can be open once in a process, and a process may have several feature stores.
_stores: dict[str, tuple[Store, int]] = {}
_places: dict[tuple[Any, ...], Place] = {}
_lock = threading.Lock()


def _take_store(place: str, create: bool, memory_bytes: int | None) -> Store:
    with _lock:
        store, users = _stores.get(place, (None, 0))
        if store is None:
            store = open_store(place, create=create, memory_bytes=memory_bytes)
        _stores[place] = store, users + 1
        return store


def _leave_store(place: str) -> None:
    with _lock:
        store, users = _stores.pop(place)
        if users > 1:
            _stores[place] = store, users - 1
        else:
            store.close()


@lru_cache(maxsize=64)
def _resolved(store: str, base: Path | None) -> str:
    return store if _is_url(store) else str(((base or Path()) / Path(store).expanduser()).resolve())


def _key(config: RepoConfig) -> tuple[Any, ...]:
    own = own_config(config)
    store = None if own.store is None else _resolved(own.store, config.repo_path)
    return (
        *(store, own.connection, own.timeout_seconds, own.read_only, own.refresh_seconds),
        *(own.ca_file, own.certificate_file, own.key_file, own.durability, own.memory_bytes),
    )


def own_config(config: RepoConfig) -> ForebayOnlineStoreConfig:
    own: Any = config.online_store
    if not isinstance(own, ForebayOnlineStoreConfig):
        raise UsageError(
            f"online_store is of type {own and own.type}: set it to "
            "forebay.feast.ForebayOnlineStore"
        )
    return own


def place_of(config: RepoConfig) -> Place:
    """The tables of a configuration, the same for all that have it."""
    key = _key(config)
    place = _places.get(key)
    if place is None:
        with _lock:
            place = _places.setdefault(key, Place(key[0], own_config(config)))
    return place


def close_place(config: RepoConfig) -> None:
    with _lock:
        place = _places.pop(_key(config), None)
    if place is not None:
        place.close()


def values_of(table: Readable | None, keys: Sequence[Key]) -> list[Any]:
    """What a table has for keys; nothing where it is absent, or was dropped a moment ago."""
    try:
        return [None] * len(keys) if table is None else table.get_many(keys)
    except MissingError:
        return [None] * len(keys)
