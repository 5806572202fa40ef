"""The commands of the command line, called in this process."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from numbers import Integral, Real
from os import PathLike
from typing import Any

from ._data import Data, Input
from ._errors import Error, UsageError
from ._forebay import command as call
from ._progress import Drawing, ProgressOption, drawing
from ._text import at_home

Path = str | PathLike[str]
_PATHS = frozenset(
    {"store", "work_dir", "columns_from", "boundaries", "bad_rows", "plan"}
    | {"login", "tls_ca", "tls_cert", "tls_key"}
)
"""Options that are paths, or may be, where they are text."""
Boundaries = Path | Sequence[str | bytes | int]
"""Where partitions begin: keys or slots, or the name of a file of them, or its JSON text."""


def words(options: Mapping[str, Any]) -> list[str]:
    """Options as the words of a command line: `page_size=4096` as `--page-size=4096`."""
    out: list[str] = []
    for name, value in options.items():
        flag = f"--{name.rstrip('_').replace('_', '-')}"
        match value:
            case None | False:
                pass
            case True:
                out.append(flag)
            case timedelta():
                out.append(f"{flag}={_milliseconds(value.total_seconds())}")
            case Real() if name == "ttl":
                out.append(f"{flag}={_milliseconds(float(value))}")
            case str() if name in _PATHS:
                out.append(f"{flag}={at_home(value)}")
            case str() | Real():
                out.append(f"{flag}={value}")
            case PathLike():
                out.append(f"{flag}={at_home(value)}")  # pyright: ignore[reportUnknownArgumentType]
            case Mapping():
                items: Any = value.items()  # pyright: ignore[reportUnknownVariableType]
                out += [f"{flag}={key}:{kind}" for key, kind in items]
            case Iterable():
                items = value  # pyright: ignore[reportUnknownVariableType]
                out += [f"{flag}={item}" for item in items]
            case _:
                raise TypeError(f"{name} is {value!r}, which is no option")
    return out


def _milliseconds(seconds: float) -> str:
    if not math.isfinite(seconds) or seconds <= 0:
        raise UsageError(f"{seconds!r} seconds are no time to live")
    return f"{math.ceil(seconds * 1000)}ms"


def boundaries_word(boundaries: Boundaries | None) -> Path | None:
    """What `--boundaries` takes: a list as JSON, a path or a text of JSON as it is."""
    if boundaries is None or isinstance(boundaries, str | PathLike):
        return boundaries
    return json.dumps([_place(at) for at in boundaries])


def _place(at: Any) -> str | int | dict[str, str]:
    """A boundary in JSON: a key of text or bytes, or a slot."""
    match at:
        case bytes():
            return {"key_hex": at.hex()}
        case str():
            return at
        case Integral() if at is not True and at is not False:
            return int(at)
        case _:
            raise TypeError(f"boundaries are of str or bytes, or slots of int, not {at!r}")


def boundary_options(boundary: Sequence[str | bytes] | None) -> dict[str, Any]:
    """`--boundary` of keys that may be bytes: then all of them in hex."""
    if boundary is None or all(isinstance(at, str) for at in boundary):
        return {"boundary": boundary}
    return {"boundary": [_key_bytes(at).hex() for at in boundary], "hex": True}


def _key_bytes(key: Any) -> bytes:
    match key:
        case bytes():
            return key
        case str():
            return key.encode()
        case _:
            raise TypeError(f"a boundary is a key of str or bytes, not {key!r}")


def run_with(
    command: str,
    table: str,
    data: Data,
    options: Mapping[str, Any],
    progress: ProgressOption,
) -> tuple[bool, str, list[str]]:
    """Runs a command that takes rows; gives whether the gate held, its result, and its messages."""
    source = Input(data)
    draws = drawing(progress, table)
    # Something has to stand where files would.
    sources = source.paths if source.paths is not None else [source.name]
    line = [command, *words(options), "--", table, *sources]
    try:
        return call(line, data=source.arrow, name=source.name, rows=source.rows, listener=draws)
    except Error:
        if source.raised is not None:
            raise source.raised from None
        raise
    finally:
        if draws is not None:
            draws.close()


def run(
    command: str,
    arguments: Iterable[str] = (),
    options: Mapping[str, Any] | None = None,
    store: Path | None = None,
    draws: Drawing | None = None,
) -> Any:
    """Runs a command and gives its result."""
    line = [command, *words({"store": store, **(options or {})}), "--", *arguments]
    _, text, _ = call(line, listener=draws)
    return json.loads(text) if text else None
