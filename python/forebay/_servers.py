"""Which server has which keys of a table, and asking it: redirects, other nodes, what is repeated.

Reads are repeated until the time for one call is over. A write is sent again only where it was not
carried out for certain.
"""

from __future__ import annotations

import bisect
import importlib
import logging
import os
import random
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ._errors import Error, MissingError, NotWrittenError, UncertainError
from ._wire import Address, Broken, Command, Place, Unreached, Wire, failure, uncertain

_log = logging.getLogger("forebay")

# Of a write that is not made yet.
_LEFT: Any = object()

# How long a node that did not answer is asked last.
_SUSPECT_S = 3.0
# Servers forward what they have not got, so that an old map is not noticed: it is asked for anew.
_MAP_S = 15.0
_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5


class Class(NamedTuple):
    """A server whose SCAN walks some slots."""

    address: Address
    slots: tuple[tuple[int, int], ...]


class Routes:
    """Who has the ranges of a table."""

    def __init__(self, lowers: list[Any], holders: list[list[Address]], hashed: bool) -> None:
        self._lowers, self._holders, self._hashed = lowers, holders, hashed
        self._slot_of: Any = importlib.import_module("redis.crc").key_slot if hashed else None
        self._until = time.monotonic() + _MAP_S

    @property
    def is_fresh(self) -> bool:
        return time.monotonic() < self._until

    def holders(self, wire_key: bytes) -> list[Address]:
        """The servers that have a key, the primary first."""
        place: Any = wire_key.partition(b":")[2]
        if self._hashed and len(self._lowers) > 1:
            place = self._slot_of(wire_key)
        if len(self._lowers) <= 1:
            return self._holders[0]
        return self._holders[max(bisect.bisect_right(self._lowers, place) - 1, 0)]

    def all(self) -> list[Address]:
        return list(dict.fromkeys(address for held in self._holders for address in held))


class Servers:
    """Servers that are one cluster, or stand for one store."""

    def __init__(self, place: Place, timeout: float, tls: dict[str, str | None]) -> None:
        self.wire = Wire(place, timeout, tls)
        self._made_of = (place, timeout, tls)
        self._seeds, self._timeout = place.addresses, timeout
        self._lock = threading.Lock()
        _all.add(self)
        self._routes: dict[str, Routes] = {}
        self._nodes: list[Address] = []
        self._suspects: dict[Address, float] = {}
        self._clustered: bool | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return (Servers, self._made_of)

    def forked(self) -> None:
        """Told in the child of a fork: connections are the parent's, and so may be the lock."""
        self._lock = threading.Lock()
        self.wire.forked()

    # What is known of them.

    def _everybody(self) -> list[Address]:
        with self._lock:
            known = dict.fromkeys((*self._nodes, *self._seeds))
        return self._in_turn(list(known))

    def _in_turn(self, addresses: list[Address]) -> list[Address]:
        """Those that did not answer lately come last."""
        now = time.monotonic()
        with self._lock:
            return sorted(
                addresses, key=lambda one: self._suspects.get(one, -_SUSPECT_S) + _SUSPECT_S > now
            )

    def _suspect(self, address: Address, problem: object) -> None:
        now = time.monotonic()
        with self._lock:
            before = self._suspects.get(address, -_SUSPECT_S)
            self._suspects[address] = now
            self._routes.clear()
        if before + _SUSPECT_S < now:
            _log.warning("a server does not answer, and is asked last: %s", problem)

    def forget(self, table: str) -> None:
        """Has the routes of a table be asked for again."""
        with self._lock:
            self._routes.pop(table, None)

    def ask_any(self, command: Command) -> Any:
        """The reply of the first server that has one; a server may not have the table."""
        problem: Exception | None = None
        for address in self._everybody():
            try:
                (reply,) = self.wire.exchange(address, [command])
            except (Unreached, Broken) as error:
                self._suspect(address, error)
                problem = problem or error
                continue
            if not self.wire.is_error(reply):
                return reply
            error = failure(reply)
            if not isinstance(error, MissingError) and not self.wire.is_passing(reply):
                raise error
            problem = error
        if isinstance(problem, MissingError):
            raise problem
        raise Unreached(f"no server answered: {problem}")

    def classes(self) -> list[Class] | None:
        """Who walks which slots; None: each server walks all there is."""
        for address in self._everybody():
            try:
                return self.classes_at(address)
            except (Unreached, Broken) as error:
                self._suspect(address, error)
        raise Unreached("no server answered")

    def classes_at(self, address: Address) -> list[Class] | None:
        """The same as one server knows it."""
        (rows,) = self.wire.exchange(address, [("CLUSTER", "SLOTS")])
        if self.wire.is_cut_off(rows):
            raise Unreached(str(rows))
        if self.wire.is_error(rows):
            if "cluster support disabled" not in str(rows):
                raise failure(rows)
            self._clustered = False
            return None
        self._clustered = True
        slots: dict[Address, list[tuple[int, int]]] = {}
        nodes: list[Address] = []
        for first, last, *listed in rows:
            reported = [Address(host.decode(), port) for host, port, *_ in listed]
            nodes += reported
            slots.setdefault(reported[0], []).append((first, last))
        with self._lock:
            self._nodes = list(dict.fromkeys(nodes))
        return [Class(primary, tuple(sorted(ranges))) for primary, ranges in sorted(slots.items())]

    def routes(self, table: str, hashed: bool) -> Routes:
        with self._lock:
            known = self._routes.get(table)
        if known is not None and known.is_fresh:
            return known
        if self._clustered is None or (self._clustered and not self._nodes):
            self.classes()
        if not self._clustered:
            return Routes([], [self._everybody()], False)
        ranges = self.ask_any(("KV.MAP", table))
        holders = [[Address.parse(one.decode()) for one in held] for _, _, held in ranges]
        routes = Routes([lower for lower, _, _ in ranges], holders, hashed)
        with self._lock:
            self._routes[table] = routes
        return routes

    # Asking.

    def tries(self) -> Iterator[float]:
        """Goes on, with pauses, until the time for one call is over."""
        end, pause = time.monotonic() + self._timeout, _PAUSE_S
        while True:
            yield end
            if time.monotonic() + pause > end:
                return
            time.sleep(random.uniform(pause / 2, pause))
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def spread(self, holders: list[Address]) -> list[Address]:
        """Servers that have something to read, in the order in which they are asked."""
        if self._clustered:
            holders = random.sample(holders, len(holders))
        return self._in_turn(holders)

    def try_read(
        self, holders: list[Address], commands: Sequence[Command], led: bool = False
    ) -> list[Any]:
        """The replies of the first server that gives them; `Again` where none did.

        Of a live table the leader, which comes first, is asked first (`led`)."""
        problem: object = "no server has these keys just now"
        for address in self._in_turn(holders) if led else self.spread(holders):
            try:
                replies = self.wire.exchange(address, commands)
            except (Unreached, Broken) as error:
                self._suspect(address, error)
                problem = error
                continue
            passing = [reply for reply in replies if self.wire.is_passing(reply)]
            if not passing:
                return replies
            problem = passing[0]
        raise Again(problem)

    def write(
        self, table: str, hashed: bool, commands: Sequence[tuple[bytes, Command]]
    ) -> list[Any]:
        """Sends each command to the server that its wire key is written at, once; gives replies."""
        replies: list[Any] = [_LEFT] * len(commands)
        left: dict[int, Address | None] = dict.fromkeys(range(len(commands)))
        problem: object = None
        for _ in self.tries():
            try:
                left, problem = self._write_some(table, hashed, commands, left, replies)
            except Unreached as error:
                problem = error
                left = dict.fromkeys(place for place in left if replies[place] is _LEFT)
            if not left:
                return replies
            self.forget(table)
        done = len(commands) - len(left)
        raise NotWrittenError(f"{done} of {len(commands)} writes were made: {problem}")

    def _write_some(
        self,
        table: str,
        hashed: bool,
        commands: Sequence[tuple[bytes, Command]],
        left: dict[int, Address | None],
        replies: list[Any],
    ) -> tuple[dict[int, Address | None], object]:
        """Gives the places of those that were not carried out, with where MOVED leads, and why."""
        routes = self.routes(table, hashed)
        groups: dict[Address, list[int]] = {}
        for place, target in left.items():
            holders = routes.holders(commands[place][0])
            if target is None and not holders:
                raise Unreached("no server has these keys just now")
            # Who does not answer may lead no longer: another replica knows who does.
            groups.setdefault(target or self._in_turn(holders)[0], []).append(place)
        refused: dict[int, Any] = {}
        for address, places in groups.items():
            try:
                got = self.wire.exchange(address, [commands[place][1] for place in places])
            except Unreached as error:
                self._suspect(address, error)
                raise
            except Broken as error:
                self._suspect(address, error)
                raise uncertain(error) from None
            if cut_off := [reply for reply in got if self.wire.is_cut_off(reply)]:
                self._suspect(address, f"{address}: {cut_off[0]}")
            refused |= self._take(commands, places, got, replies)
        targets = {place: self.wire.target(reply) for place, reply in refused.items()}
        return targets, next(iter(refused.values()), None)

    def _take(
        self,
        commands: Sequence[tuple[bytes, Command]],
        places: list[int],
        got: list[Any],
        replies: list[Any],
    ) -> dict[int, Any]:
        """Keeps replies; gives those that say that nothing was written, and may be sent again."""
        problem: Error | None = None
        refused: dict[int, Any] = {}
        behind: set[bytes] = set()
        # From the last: what was refused is not written behind what came after it.
        for place, reply in reversed(list(zip(places, got, strict=True))):
            key = commands[place][0]
            if self.wire.is_refused(reply) and key not in behind:
                refused[place] = reply
                continue
            behind.add(key)
            if self.wire.leaves_unknown(reply):
                problem = uncertain(reply)
            elif self.wire.is_error(reply):
                if not isinstance(problem, UncertainError):
                    problem = failure(reply)
            else:
                replies[place] = reply
        if problem is not None:
            raise problem
        return dict(sorted(refused.items()))


class Again(Exception):
    """A read that is to be tried again."""


_all: weakref.WeakSet[Servers] = weakref.WeakSet()


def _forked() -> None:
    for servers in list(_all):
        servers.forked()


os.register_at_fork(after_in_child=_forked)
