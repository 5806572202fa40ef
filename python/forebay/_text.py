"""Numbers as people read them, tables as notebooks show them, paths as people write them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from os import PathLike, fspath
from os.path import expanduser


def at_home(path: str | PathLike[str]) -> str:
    """A path or a URL as text; a `~` that it begins with is the user's home, as in a shell."""
    return expanduser(fspath(path))


def count(n: int, noun: str = "") -> str:
    """`1 row`, `2,000 rows`."""
    plural = "" if n == 1 or not noun else "s"
    return f"{n:,} {noun}{plural}".rstrip()


def size(n: int) -> str:
    """1536 as `1.5 KiB`."""
    value, units = float(n), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    unit = 0
    while value >= 1024 and unit + 1 < len(units):
        value, unit = value / 1024, unit + 1
    return f"{n} B" if unit == 0 else f"{value:.1f} {units[unit]}"


def between(least: int, most: int) -> str:
    return f"{most:,}" if least == most else f"{least:,} to {most:,}"


_STYLE = "text-align:{align};padding:2px 10px;white-space:nowrap;vertical-align:top"
_MARK = "background:rgba(46,160,67,.14)"


def html_table(
    title: str,
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[str] = (),
    marked: int | None = None,
) -> str:
    """A small table under a title; `right` are columns of numbers, `marked` a row to stand out."""
    aligned = [_STYLE.format(align="right" if name in right else "left") for name in head]
    cells = "".join(
        f'<th style="{style}">{escape(name)}</th>'
        for name, style in zip(head, aligned, strict=True)
    )
    body: list[str] = []
    for place, row in enumerate(rows):
        mark = f' style="{_MARK}"' if place == marked else ""
        tds = "".join(
            f'<td style="{style}">{escape(cell)}</td>'
            for cell, style in zip(row, aligned, strict=True)
        )
        body.append(f"<tr{mark}>{tds}</tr>")
    heading = f'<div style="font-weight:600;margin:4px 0">{escape(title)}</div>' if title else ""
    return (
        f'<div>{heading}<table style="border-collapse:collapse"><thead><tr>{cells}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def plain_table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str]) -> str:
    lines = [list(head), *[list(row) for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    out: list[str] = []
    for line in lines:
        cells = [
            cell.rjust(width) if name in right else cell.ljust(width)
            for cell, width, name in zip(line, widths, head, strict=True)
        ]
        out.append("  ".join(cells).rstrip())
    return "\n".join(out)
