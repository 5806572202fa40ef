"""The contenders of bench-python: each builds its store once from the Parquet file, opens it, and gives rows as dicts."""

import datetime
import os
import shutil
import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = ("key", "name", "price", "count", "day", "flag", "text")
DAY = COLUMNS.index("day")
FLAG = COLUMNS.index("flag")
CHUNK = 1000


def rows(source: Path):
    """Tuples, in the order of the keys."""
    for batch in pq.read_table(source).sort_by("key").to_batches(max_chunksize=50_000):
        yield from zip(*(column.to_pylist() for column in batch.columns))


def packed(row: tuple) -> bytes:
    """What lmdb and Redis hold: the values by msgpack, without their names, the day as a number."""
    import msgpack

    return msgpack.packb((*row[:DAY], row[DAY].toordinal(), *row[DAY + 1:]))


def arrow(records: list) -> pa.Table:
    """Rows as columns, by the quickest way from tuples."""
    return pa.table([pa.array(column) for column in zip(*records)], names=COLUMNS)


class Forebay:
    name, label = "forebay", "Forebay"
    tuning = "`forebay.push` with the options by default; `table.get`, `table.get_many`, `table.to_arrow`; what it stores is columns with types"

    @staticmethod
    def build(source: Path, path: Path) -> None:
        import forebay

        forebay.push(str(source), "rows", key="{key}", store=str(path), progress=False)

    def __init__(self, path: Path):
        import forebay

        self.table = forebay.open(str(path))["rows"]
        self.get, self.get_many, self.scan = self.table.get, self.table.get_many, self.table.to_arrow


class Lmdb:
    name, label = "lmdb", "py-lmdb"
    tuning = ("built with `append` in one transaction; read-only, without locks and read-ahead, one transaction and cursor a thread; `getmulti` for many keys; "
              "msgpack of the values without their names, made a dict by `zip`")

    @staticmethod
    def build(source: Path, path: Path) -> None:
        import lmdb

        with lmdb.open(str(path), map_size=4 << 30) as environment, environment.begin(write=True) as transaction:
            for row in rows(source):
                transaction.put(row[0].encode(), packed(row), append=True)

    def __init__(self, path: Path):
        import lmdb
        import msgpack

        self.unpack = msgpack.unpackb
        self.environment = lmdb.open(str(path), readonly=True, lock=False, readahead=False)

    def _row(self, value) -> tuple:
        row = self.unpack(value)
        row[DAY] = datetime.date.fromordinal(row[DAY])
        return row

    def thread(self) -> "LmdbThread":
        return LmdbThread(self)


class LmdbThread:
    def __init__(self, store: Lmdb):
        self.row, self.transaction = store._row, store.environment.begin(buffers=True)
        self.cursor = self.transaction.cursor()

    def get(self, key: str) -> dict:
        return dict(zip(COLUMNS, self.row(self.transaction.get(key.encode()))))

    def get_many(self, keys: list[str]) -> list[dict]:
        row = self.row
        found = self.cursor.getmulti([key.encode() for key in keys])
        return [dict(zip(COLUMNS, row(value))) for _, value in found]

    def scan(self) -> pa.Table:
        return arrow([self.row(value) for _, value in self.transaction.cursor()])


class Sqlite:
    name, label = "sqlite", "sqlite3"
    tuning = ("a table WITHOUT ROWID whose primary key is the key; opened read-only and immutable, mapped, one connection a thread; `WHERE key IN (...)` with 1,000 keys "
              "for many; a column a column, the day as a whole number")

    @staticmethod
    def build(source: Path, path: Path) -> None:
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA journal_mode=OFF")
            connection.execute("CREATE TABLE rows (key TEXT PRIMARY KEY, name TEXT, price REAL, count INTEGER, day INTEGER, flag INTEGER, text TEXT) WITHOUT ROWID")
            stored = ((*row[:DAY], row[DAY].toordinal(), *row[DAY + 1:]) for row in rows(source))
            connection.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?)", stored)
        connection.execute("VACUUM")
        connection.close()

    def __init__(self, path: Path):
        self.path = path

    def thread(self) -> "SqliteThread":
        return SqliteThread(self.path)


class SqliteThread:
    def __init__(self, path: Path):
        self.connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True, cached_statements=16)
        self.connection.execute(f"PRAGMA mmap_size={4 << 30}")
        self.ask = self.connection.cursor().execute

    @staticmethod
    def row(values: tuple) -> dict:
        row = dict(zip(COLUMNS, values))
        row["day"], row["flag"] = datetime.date.fromordinal(row["day"]), bool(row["flag"])
        return row

    def get(self, key: str) -> dict:
        return self.row(self.ask("SELECT * FROM rows WHERE key = ?", (key,)).fetchone())

    def get_many(self, keys: list[str]) -> list[dict]:
        found = {}
        for start in range(0, len(keys), CHUNK):
            part = keys[start:start + CHUNK]
            marks = ",".join("?" * len(part))
            found.update((values[0], self.row(values)) for values in self.ask(f"SELECT * FROM rows WHERE key IN ({marks})", part))
        return [found[key] for key in keys]

    def scan(self) -> pa.Table:
        columns = [list(column) for column in zip(*self.ask("SELECT * FROM rows").fetchall())]
        columns[DAY] = list(map(datetime.date.fromordinal, columns[DAY]))
        columns[FLAG] = list(map(bool, columns[FLAG]))
        return pa.table([pa.array(column) for column in columns], names=COLUMNS)


class Redis:
    name, label = "redis", "redis-py, MGET"
    tuning = ("a redis-server on loopback, hiredis, one connection a thread; GET for one key, MGET of 1,000 keys in pipelines of 10 for many; msgpack as for lmdb")
    """Its server is of the driver: `path` is the port."""

    def __init__(self, path: Path):
        import msgpack

        self.unpack, self.port = msgpack.unpackb, int(path.name)

    @staticmethod
    def fill(source: Path, port: int) -> None:
        import redis

        pipe = redis.Redis(port=port).pipeline(transaction=False)
        for number, row in enumerate(rows(source), 1):
            pipe.set(row[0], packed(row))
            if number % 5000 == 0:
                pipe.execute()
        pipe.execute()

    _row = Lmdb._row

    def thread(self) -> "RedisThread":
        return RedisThread(self)


class RedisThread:
    def __init__(self, store: Redis):
        import redis

        self.row, self.client = store._row, redis.Redis(port=store.port)

    def get(self, key: str) -> dict:
        return dict(zip(COLUMNS, self.row(self.client.get(key))))

    def get_many(self, keys: list[str]) -> list[dict]:
        row = self.row
        return [dict(zip(COLUMNS, row(value))) for value in self._values(keys)]

    def _values(self, keys: list):
        for start in range(0, len(keys), 10 * CHUNK):
            pipe = self.client.pipeline(transaction=False)
            for at in range(start, min(start + 10 * CHUNK, len(keys)), CHUNK):
                pipe.mget(keys[at:at + CHUNK])
            for values in pipe.execute():
                yield from values

    def scan(self) -> pa.Table:
        return arrow([self.row(value) for value in self._values(list(self.client.scan_iter(count=10 * CHUNK)))])


class Dict:
    name, label = "dict", "a dict of dicts"
    tuning = "all rows decoded beforehand; it gives out the dict that it holds, and copies nothing"

    @staticmethod
    def build(source: Path, path: Path) -> None:
        path.symlink_to(source)

    def __init__(self, path: Path):
        self.rows = {row[0]: dict(zip(COLUMNS, row)) for row in rows(path)}
        self.get = self.rows.get

    def get_many(self, keys: list[str]) -> list[dict]:
        return list(map(self.rows.get, keys))

    def scan(self) -> pa.Table:
        return arrow([tuple(row.values()) for row in self.rows.values()])


class DuckDb:
    name, label = "duckdb", "DuckDB"
    tuning = ("a table whose primary key is the key, written in its order; a cursor a thread, `threads` as they come; `WHERE key = ?` for one key, `WHERE key IN (...)` for up to "
              "1,000, a join with an Arrow column of the keys for more")

    @staticmethod
    def build(source: Path, path: Path) -> None:
        import duckdb

        with duckdb.connect(str(path)) as connection:
            connection.execute("CREATE TABLE rows (key VARCHAR PRIMARY KEY, name VARCHAR, price DOUBLE, count BIGINT, day DATE, flag BOOLEAN, text VARCHAR)")
            connection.execute(f"INSERT INTO rows SELECT * FROM '{source}' ORDER BY key")

    def __init__(self, path: Path):
        import duckdb

        self.connection = duckdb.connect(str(path), read_only=True)

    def thread(self) -> "DuckDbThread":
        return DuckDbThread(self.connection.cursor())


class DuckDbThread:
    def __init__(self, cursor):
        self.cursor = cursor

    def get(self, key: str) -> dict:
        return dict(zip(COLUMNS, self.cursor.execute("SELECT * FROM rows WHERE key = ?", [key]).fetchall()[0]))

    def get_many(self, keys: list[str]) -> list[dict]:
        # The index is used for a short list; for a long one it is quicker to read the table.
        if len(keys) <= CHUNK:
            marks = ",".join("?" * len(keys))
            found = self.cursor.execute(f"SELECT * FROM rows WHERE key IN ({marks})", keys).fetchall()
        else:
            self.cursor.register("asked", pa.table({"wanted": keys}))
            found = self.cursor.execute("SELECT rows.* FROM rows JOIN asked ON key = wanted").fetchall()
        rows = {values[0]: dict(zip(COLUMNS, values)) for values in found}
        return [rows[key] for key in keys]

    def scan(self) -> pa.Table:
        return self.cursor.execute("SELECT * FROM rows").to_arrow_table()


STORES = [Forebay, Lmdb, Sqlite, Redis, Dict, DuckDb]


def ensure_built(store, source: Path, path: Path) -> None:
    """Builds it beside its place, so that one that was interrupted is not taken for a whole one."""
    if path.exists():
        return
    unfinished = path.with_name(path.name + ".unfinished")
    if unfinished.is_dir():
        shutil.rmtree(unfinished)
    unfinished.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    store.build(source, unfinished)
    os.replace(unfinished, path)
