"""Messages in Python's words: options, methods and functions in place of flags and commands.

The libraries write messages for the command line. Here `--bad-rows skip` becomes
`bad_rows="skip"`, and `forebay swap p 3` `store["p"].swap(3)`. What Python has no name for, as
`forebay cluster status`, stays: the command line comes with the package.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Literal, get_args, get_origin, get_type_hints

_NAME = r"--(?P<name>[a-z][a-z-]*)"
_VALUE = (
    r"'(?P<quoted>[^']*)'|(?P<template>\{\S*\})|(?P<bare>[A-Z]{2,}\b|\d[\w%]*|\w+:\w+|[a-z0-9-]+)"
)
_FLAG = re.compile(rf"{_NAME}(?:(?:=|\s+)(?:{_VALUE}))?")
_TOLD = re.compile(
    r"(?P<rollback>forebay rollback (?P<of>\S+) --from (?P<from>\d+))"
    # A command with flags of its own.
    r"|(?P<command>forebay [a-z]+(?: [a-z]+)?(?: --[a-z-]+(?: [A-Z]+)?)+)"
    r"|(?P<call>forebay (?:diff|swap|rollback|verify|versions|compact|drop) \S+(?: \d+)*)"
    r"|(?P<function>forebay (?:push|load)\b)"
    # As the parser of command lines tells of one.
    r"|'--(?P<argument>[a-z-]+)(?: |\[=)<[^']*>\]?'"
    r"|--(?P<bare_argument>[a-z-]+) <[^>]*>"
    r"|'<(?P<word>[A-Z][A-Z0-9]*)>(?:\.\.\.)?'"
    r"|(?<![\w-])(?P<flag>--[a-z][a-z-]*)"
)


def reported(message: str) -> str:
    """A message of the libraries, as Python's users read it.

    >>> from forebay._python_words import reported
    >>> reported("leave such rows out by --bad-rows skip, or push with --force")
    'leave such rows out by bad_rows="skip", or push with force=True'
    >>> reported("it needs its columns, as by --column name:text --column score:int64")
    'it needs its columns, as by column={"name": "text", "score": "int64"}'
    >>> reported("let it serve as it is: forebay swap p 3")
    'let it serve as it is: store["p"].swap(3)'
    >>> reported("to go back once more: forebay rollback p --from 3")
    'to go back once more: store["p"].rollback(from_version=3)'
    """
    out: list[str] = []
    at = 0
    while found := _TOLD.search(message, at):
        out.append(message[at : found.start()])
        words, at = _words(message, found)
        out.append(words)
    return "".join(out) + message[at:]


def _words(message: str, found: re.Match[str]) -> tuple[str, int]:
    """The replacement of what was found, and where the message continues."""
    if found["rollback"]:
        return f'store["{found["of"]}"].rollback(from_version={found["from"]})', found.end()
    if found["call"]:
        _, method, table, *numbers = found["call"].split()
        return f'store["{table}"].{method}({", ".join(numbers)})', found.end()
    if found["function"]:
        return found["function"].replace(" ", "."), found.end()
    argument = _python_name(found["argument"] or found["bare_argument"] or "")
    if argument in _kinds():
        return argument, found.end()
    if found["word"]:
        return found["word"].lower(), found.end()
    if found["flag"] and _python_name(found["flag"][2:]) in _kinds():
        return _options(message, found.start())
    return found[0], found.end()


def _options(message: str, at: int) -> tuple[str, int]:
    """The option at this place, with all that follow of the same name."""
    name, values, end = "", list[str](), at
    while flag := _FLAG.match(message, at):
        given = _value(flag)
        if name and (flag["name"] != name or given is None):
            break
        name, end = flag["name"], flag.end() if given is not None else flag.end("name")
        values += [] if given is None else [given]
        space = re.compile(r"\s*").match(message, end)
        at = space.end() if space else end
        if given is None:
            break
    return _written(name, values), end


def _value(flag: re.Match[str]) -> str | None:
    """The flag's value, if the word that follows is one."""
    if flag["quoted"] is not None:
        return flag["quoted"]
    if flag["template"]:
        return flag["template"]
    bare = flag["bare"]
    is_value = bare and (not bare[0].islower() or ":" in bare or bare in _choices(flag["name"]))
    return bare if is_value else None


def _written(flag: str, values: list[str]) -> str:
    name = _python_name(flag)
    if not values:
        return f"{name}=True" if bool in (_kinds()[name], *get_args(_kinds()[name])) else name
    if name in ("column", "index"):
        pairs = (value.partition("=" if name == "index" else ":")[::2] for value in values)
        return f"{name}={{{', '.join(f'{_text(key)}: {_text(kind)}' for key, kind in pairs)}}}"
    written = [value if value.isdecimal() else _text(value) for value in values]
    return f"{name}={written[0]}" if len(written) == 1 else f"{name}=[{', '.join(written)}]"


def _text(value: str) -> str:
    return f'"{value}"'


def _python_name(flag: str) -> str:
    name = flag.replace("-", "_")
    return "as_" if name == "as" else name


@functools.cache
def _kinds() -> dict[str, Any]:
    """The types of all options, by name."""
    from . import _options as options

    kinds: dict[str, Any] = {"dry_run": bool | Literal["sample", "all"], "replicas": int}
    for takers in (options.PushOptions, options.LoadOptions, options.CreateOptions):
        for name, kind in get_type_hints(takers).items():
            kinds[name] = kinds[name] | kind if name in kinds else kind
    return kinds


def _choices(flag: str) -> set[str]:
    """The values that an option has, where they are a few words."""
    return set(_literals(_kinds().get(_python_name(flag))))


def _literals(kind: Any) -> list[str]:
    if get_origin(kind) is Literal:
        return [choice for choice in get_args(kind) if isinstance(choice, str)]
    return [choice for part in get_args(kind) for choice in _literals(part)]
