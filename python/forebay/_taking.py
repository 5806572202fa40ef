"""Functions that take the options of a class: their signature, their text, what they refuse."""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import Parameter, cleandoc, signature
from numbers import Integral, Real
from types import UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from . import _options
from ._option_texts import TEXTS

_P = ParamSpec("_P")
_T = TypeVar("_T")

_LITERAL = re.compile(r"Literal\[([^\]]*)\]")
_WIDTH = 88


def takes(options: type) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Gives a function the keys of `options`, in place of its `**options`, as keyword parameters:
    its signature and its text have them, and a call with any other is a `TypeError`."""

    def taking(function: Callable[_P, _T]) -> Callable[_P, _T]:
        own = signature(function)
        named = [p for p in own.parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
        types: dict[str, Any] = options.__annotations__
        for name, kind in types.items():
            written = kind.__forward_arg__
            default = False if written == "bool" else None
            parameter = Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=written)
            named.append(parameter)
        known = {parameter.name for parameter in named}

        @functools.wraps(function)
        def checked(*words: _P.args, **given: _P.kwargs) -> _T:
            unknown = next((name for name in given if name not in known), None)
            if unknown is not None:
                name = function.__name__
                raise TypeError(f"{name}() got an unexpected keyword argument {unknown!r}")
            refuse_other_types(options, given)
            return function(*words, **given)

        setattr(checked, "__signature__", own.replace(parameters=named))  # noqa: B010
        if function.__doc__ is not None:
            checked.__doc__ = with_options(function.__doc__, options)
        return checked

    return taking


def refuse_other_types(options: type, given: Mapping[str, object]) -> None:
    """Raises where an option is of a class that it cannot be. What is none of its choices is
    refused by who reads it."""
    for name, hint in _hints(options).items():
        value = given.get(name)
        if value is not None and not _is_one(hint, value):
            kind = _readable(options.__annotations__[name].__forward_arg__)
            raise TypeError(f"{name} is {kind}, not {value!r}")


@functools.cache
def _hints(options: type) -> dict[str, Any]:
    return get_type_hints(options)


def _is_one(hint: Any, value: Any) -> bool:
    kind = get_origin(hint) or hint
    if kind in (UnionType, Union):
        return any(_is_one(one, value) for one in get_args(hint))
    if kind is Literal:
        return any(isinstance(value, type(one)) for one in get_args(hint))
    if kind in (int, float):
        number = Integral if kind is int else Real
        return not isinstance(value, bool) and isinstance(value, number)
    if kind is Sequence:
        return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
    return isinstance(value, kind)


def with_options(text: str, options: type) -> str:
    """The text of a function, with a line for each option."""
    lines = [cleandoc(text), "", "Options, each None or False where it is not given:", ""]
    meanings = TEXTS[options]
    for name, kind in options.__annotations__.items():
        line = f"{name} ({_readable(kind.__forward_arg__)}): {meanings[name]}."
        lines += textwrap.wrap(line, _WIDTH, initial_indent="  ", subsequent_indent="      ")
    return "\n".join(lines)


def _readable(annotation: str) -> str:
    """A type, as one reads it who knows none of this package's names."""
    kinds: list[str] = []
    for part in _LITERAL.sub(lambda found: found[1].replace(", ", " | "), annotation).split(" | "):
        if part in ("Order", "Duplicates", "Delta", "Compression", "Format"):
            kinds += [f'"{choice}"' for choice in get_args(getattr(_options, part))]
        elif part == "ProgressOption":
            kinds += ["bool", "function"]
        elif part != "None":
            kinds += {"Path": ["path"], "Boundaries": ["Sequence", "path"]}.get(part, [part])
    return " | ".join(kinds).replace("'", '"')
