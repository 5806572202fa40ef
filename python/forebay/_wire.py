"""Connections to servers by the Redis protocol: where they go, one exchange, what errors mean.

The package redis makes connections and reads replies. It repeats nothing here: whoever sends knows
what may be sent again.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from ._errors import DamagedError, Error, MissingError, NotWrittenError, UncertainError, UsageError

DEFAULT_PORT = 7379
# A server that takes longer to take a connection is gone around.
_CONNECT_S = 2.0
Command = Sequence[bytes | str | int]


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @staticmethod
    def parse(text: str) -> Address:
        """`host`, `host:port`, `[::1]:port`."""
        try:
            parts = urlsplit(f"//{text}")
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if not host or any(mark in text for mark in "/?#@ "):
            raise UsageError(f"{text!r} is no address of a server: give host:port")
        return Address(host, DEFAULT_PORT if port is None else port)


class Place(NamedTuple):
    """What a URL says: the servers, and how they are met."""

    addresses: tuple[Address, ...]
    user: str | None
    password: str | None
    tls: bool

    @staticmethod
    def parse(url: str) -> Place:
        """`redis://[user:password@]host:port,host:port`; `rediss://` is TLS."""
        scheme, mark, rest = url.partition("://")
        if not mark or scheme not in ("redis", "rediss"):
            raise UsageError(f"{shown(url)!r} is no URL of servers: redis://host:port,host:port")
        login, _, hosts = rest.rpartition("@")
        hosts = hosts.removesuffix("/0").removesuffix("/")
        user, colon, password = login.partition(":")
        if login and not colon:
            raise UsageError("a URL with a user has a password: redis://user:password@host:port")
        return Place(
            tuple(Address.parse(host) for host in hosts.split(",")),
            unquote(user) or None,
            unquote(password) or None,
            scheme == "rediss",
        )


def shown(url: str) -> str:
    """A URL without its password."""
    scheme, mark, rest = url.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"


class Unreached(Exception):
    """No connection could be made: nothing was sent."""


class Broken(Exception):
    """The connection failed after commands may have been sent."""


class Wire:
    """Connections to any number of servers, which threads share."""

    def __init__(self, place: Place, timeout: float, tls: dict[str, str | None]) -> None:
        try:
            self._redis: Any = importlib.import_module("redis")
        except ImportError:
            message = "the package redis is needed for servers: pip install 'forebay[redis]'"
            raise UsageError(message) from None
        self._errors: Any = importlib.import_module("redis.exceptions")
        retry: Any = importlib.import_module("redis.retry")
        backoff: Any = importlib.import_module("redis.backoff")
        self._options: dict[str, Any] = {
            "username": place.user,
            "password": place.password,
            "socket_timeout": timeout,
            "socket_connect_timeout": min(timeout, _CONNECT_S),
            "retry": retry.Retry(backoff.NoBackoff(), 0),
            "protocol": 2,
            "max_connections": 1 << 30,
        }
        if place.tls:
            given = {f"ssl_{name}": path for name, path in tls.items() if path is not None}
            self._options |= {"connection_class": self._redis.SSLConnection, **given}
        self._pools: dict[Address, Any] = {}
        self._lock = threading.Lock()

    def exchange(self, address: Address, commands: Sequence[Command]) -> list[Any]:
        """Sends commands together; gives their replies, errors of the server among them.

        Raises `Unreached` where nothing was sent, `Broken` where something may have been.
        """
        pool = self._pool(address)
        try:
            connection = pool.get_connection()
        except (self._errors.AuthenticationError, self._errors.NoPermissionError) as error:
            raise Error(f"{address}: {error}") from None
        except (self._errors.RedisError, OSError) as error:
            raise Unreached(f"{address}: {error}") from None
        try:
            connection.send_packed_command(connection.pack_commands(commands))
            return [self._reply(connection) for _ in commands]
        except (self._errors.RedisError, OSError) as error:
            connection.disconnect()
            if isinstance(error, self._errors.AuthenticationError):
                raise Error(f"{address}: {error}") from None
            raise Broken(f"{address}: {error}") from None
        except BaseException:
            # What is on its way is nobody's reply.
            connection.disconnect()
            raise
        finally:
            pool.release(connection)

    def _reply(self, connection: Any) -> Any:
        try:
            return connection.read_response(disable_decoding=True)
        except self._errors.ResponseError as error:
            return error

    def _pool(self, address: Address) -> Any:
        with self._lock:
            pool = self._pools.get(address)
            if pool is None:
                options = {"host": address.host, "port": address.port, **self._options}
                pool = self._pools[address] = self._redis.ConnectionPool(**options)
            return pool

    def forked(self) -> None:
        """Told in the child of a fork, which makes connections of its own."""
        self._lock, self._pools = threading.Lock(), {}

    def close(self) -> None:
        with self._lock:
            pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            pool.disconnect()

    def is_error(self, reply: Any) -> bool:
        return isinstance(reply, self._errors.ResponseError)

    def is_moved(self, reply: Any) -> bool:
        """The command was not carried out: another node is the one to ask."""
        return isinstance(reply, self._errors.MovedError)

    def target(self, reply: Any) -> Address | None:
        """The node that MOVED names."""
        return Address(reply.host, reply.port) if self.is_moved(reply) else None

    def is_refused(self, reply: Any) -> bool:
        """A server says for certain that nothing was written, and that it may be just now."""
        if isinstance(reply, (self._errors.TryAgainError, self._errors.ClusterDownError)):
            return _NOTHING_WRITTEN in str(reply)
        return self.is_moved(reply) or (self.is_error(reply) and _is_replicas(reply))

    def is_cut_off(self, reply: Any) -> bool:
        """The server reaches no other one: another is to be asked."""
        return isinstance(reply, self._errors.ClusterDownError)

    def is_passing(self, reply: Any) -> bool:
        """A read of this answer is to be sent again."""
        passing = (self._errors.TryAgainError, self._errors.ClusterDownError)
        return self.is_refused(reply) or isinstance(reply, passing)

    def leaves_unknown(self, reply: Any) -> bool:
        """Whether a write of this answer may have been carried out."""
        text = str(reply)
        unknown = text.startswith(("UNCERTAIN ", "MISCONF "))
        late = isinstance(reply, self._errors.TryAgainError)
        return unknown or (late and not self.is_refused(reply))


# What -TRYAGAIN and -CLUSTERDOWN say where it is certain.
_NOTHING_WRITTEN = "nothing was written"


def _is_replicas(reply: object) -> bool:
    """No majority of a partition's replicas answers. Nothing was written."""
    return str(reply).startswith("NOREPLICAS ")


# What a server's error has in it, and the class of exception that it is.
_CLASSES: list[tuple[type[Error], tuple[str, ...]]] = [
    (MissingError, ("no table '",)),
    (DamagedError, ("is damaged", "checksum")),
    (
        UsageError,
        (
            "WRONGTYPE",
            "is a batch table",
            "without a kind of deltas",
            "do not expire",
            "is not an integer",
            "is not a valid float",
            "invalid expire time",
            "would be stored as",
            "a key of ",
            "a value of ",
            "is no version of a key",
            "is live: it has no versions",
        ),
    ),
]


def failure(reply: Any) -> Error:
    """A server's error as an exception."""
    text = str(reply).removeprefix("ERR ")
    if _is_replicas(reply) or text.startswith(_NOTHING_WRITTEN):
        return NotWrittenError(text)
    for kind, words in _CLASSES:
        if any(word in text for word in words):
            return kind(text)
    return Error(text)


def uncertain(cause: object) -> UncertainError:
    return UncertainError(
        f"the write may or may not have been carried out: {cause}. It was not sent again; read "
        "what is there before you do"
    )
