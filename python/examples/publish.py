"""Publishes a query of DuckDB, looks at what changed, and takes it back.

pip install ./python duckdb
python python/examples/publish.py STORE
"""

import sys

import duckdb

import forebay


def main(store: str) -> None:
    for day in (1, 2):
        prices = duckdb.sql(
            f"select i as article, round(10 + sin(i + {day}), 2) as price "
            f"from range(10000 + {day}) r(i)"
        )
        assert prices is not None
        print(forebay.push(prices, "prices", key="{article}", store=store))
    with forebay.open(store) as opened:
        table = opened["prices"]
        print(table.versions())
        print(table[17], table.get("no such article"))
        print(table.diff(1, 2, limit=2))
        print(table.rollback())


if __name__ == "__main__":
    main(sys.argv[1])
