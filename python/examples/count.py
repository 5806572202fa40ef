"""Counts words in a live table, by several threads, and reads the counts as a data frame.

pip install ./python polars
python python/examples/count.py STORE < a-text
"""

import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import polars as pl

import forebay


def main(store: str, lines: Iterable[str]) -> None:
    with forebay.open(store, create=True) as opened:
        if "words" in opened:
            words = opened["words"]
        else:
            words = opened.create("words", order="ordered", delta="i64", durability="100ms")

        def count(line: str) -> None:
            words.delta_many((word, 1) for word in line.lower().split())

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(count, lines))
        print(pl.DataFrame(words.scan()).sort("value", descending=True).head(5))


if __name__ == "__main__":
    main(sys.argv[1], sys.stdin)
