"""`make bench-python`: rows as Python's dicts by key and whole tables as Arrow, beside stores that Python programs use; how long other threads wait meanwhile."""

import sqlite3
import sys
from pathlib import Path

import common
import draw_python
import python_stores
from common import BENCH, DATA, Failed, Report, median_of, say, shown

ROWS = 1_000_000
CASE_SECONDS = 0.5
WAIT_ROUNDS = 20
WAIT_TARGET_MS = 10
CHILD = BENCH / "driver" / "python_cases.py"
CASES = {"get": "get", "get_many 100": "get_many, 100 keys", "get_many 10000": "get_many, 10,000 keys", "scan": "scan to Arrow"}
# How waits are measured, by who asks for the keys.
WAITS = {
    100_000: [("none", "wait"), ("forebay", "wait"), ("forebay", "wait-uncollected"), ("lmdb", "wait"), ("sqlite", "wait"), ("dict", "wait")],
    1_000_000: [("forebay", "wait"), ("forebay", "wait-uncollected")],
}


def main() -> None:
    options = common.arguments(__doc__, rounds=5)
    common.need_disk(4)
    report = Report("python", "From Python: rows by key, scans, other threads", options)
    report.body["versions"] = versions()
    rows = ROWS // (10 if options.trial else 1)
    source = write(rows)
    chosen = [store for store in python_stores.STORES if options.only in store.name]
    with server(chosen) as port:
        places = {store.name: place(store, source, port) for store in chosen}
        measured = measure(report, chosen, places, source, options)
    report.body["rows"], report.body["contenders"] = rows, measured
    report.warn_of_load()
    explain(report, rows)
    tables(report, chosen, measured)
    if "forebay" in places:
        report.body["waits"] = waits(report, places, source, rows)
        wait_table(report)
    report.text("## How each is tuned")
    report.text(*[f"- {store.label}: {store.tuning}." for store in chosen])
    report.write(lambda base: draw_python.python(report.body, base))


def versions() -> dict:
    names = ("forebay", "lmdb", "msgpack", "redis", "hiredis", "duckdb", "pyarrow")
    found = {name: common.python_version(name) for name in names}
    redis = common.run(["redis-server", "--version"]).split("v=")[1].split()[0]
    return {"Python": sys.version.split()[0], **found, "SQLite": sqlite3.sqlite_version, "redis-server": redis}


def write(count: int) -> Path:
    """The file, made once: seven columns, keys of 16 hex digits in no order."""
    path = DATA / f"python-{count // 1000}k.parquet"
    if path.exists():
        return path
    DATA.mkdir(exist_ok=True)
    say(f"generating {path.name}: {count:,} rows")
    import numpy
    import pyarrow
    import pyarrow.parquet

    random = numpy.random.default_rng(17)
    # Odd multiples of a number without factors of two repeat none.
    ids = (numpy.arange(count, dtype="u8") * numpy.uint64(2 * 0x4F1BBCDC_BFA53E0A + 1))
    letters = random.integers(97, 123, size=(count, 60), dtype="u1").tobytes().decode()
    table = pyarrow.table({
        "key": [f"{id:016x}" for id in ids.tolist()],
        "name": [f"name {id}" for id in random.integers(0, count, count).tolist()],
        "price": numpy.round(random.random(count) * 1000, 2),
        "count": random.integers(0, 1000, count),
        "day": pyarrow.array(random.integers(0, 20_000, count).astype("int32"), pyarrow.date32()),
        "flag": random.random(count) < 0.5,
        "text": [letters[start:start + 60] for start in range(0, 60 * count, 60)],
    })
    unfinished = path.with_suffix(".unfinished")
    pyarrow.parquet.write_table(table, unfinished)
    unfinished.rename(path)
    return path


class server:  # noqa: N801 - used as a block
    """A redis-server of its own on loopback, where one is wanted; gives its port."""

    def __init__(self, chosen: list):
        self.wanted = any(store.name == "redis" for store in chosen)

    def __enter__(self) -> int | None:
        if not self.wanted:
            return None
        import redis

        self.port = free_port()
        where = common.fresh("python-redis")
        words = ["redis-server", "--port", self.port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", where]
        self.process = common.Process(words, where / "log")
        self.process.wait_until(redis.Redis(port=self.port).ping, 20, "redis-server")
        return self.port

    def __exit__(self, *_) -> None:
        if self.wanted:
            self.process.stop()


def free_port() -> int:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def place(store, source: Path, port: int | None) -> Path:
    """Where a contender's data are, built the first time."""
    say(f"building {store.label}")
    if store.name == "redis":
        store.fill(source, port)
        return Path(str(port))
    # The runs of another build of Forebay may lie otherwise.
    mark = f"{common.python_version('forebay')}-{common.commit()}" if store.name == "forebay" else ""
    path = DATA / "stores" / f"{source.stem}-{store.name}{mark}"
    python_stores.ensure_built(store, source, path)
    return path


def measure(report: Report, chosen: list, places: dict, source: Path, options) -> dict:
    runs: dict[str, list[dict]] = {}
    for number in range(options.rounds):
        say(f"round {number + 1} of {options.rounds}")
        for store in chosen:
            try:
                answer = child("read", store.name, places[store.name], source, CASE_SECONDS, number)
            except Failed as why:
                report.failed(store.label, why)
                continue
            runs.setdefault(store.name, []).append(answer)
    return {name: {**of_rounds(these), "runs": these} for name, these in runs.items()}


def child(*words) -> dict:
    return common.run_json([sys.executable, CHILD, *words], seconds=600)


def of_rounds(runs: list[dict]) -> dict:
    return {case: median_of([run[case] for run in runs]) for case in runs[0]}


def explain(report: Report, rows: int) -> None:
    report.text(
        f"{rows:,} rows of seven columns (text of 16, some 11 and 60 characters, a float, a whole number, a date, a truth value), the key one of them. All give the same: a dict "
        "of Python's values, each column by its name, which is compared with the source for 1,000 keys before anything is measured. Keys are asked for in another random order in each "
        f"round; one process a contender and round, rounds in turn, {CASE_SECONDS} s a case and at least one call. Everything is in memory. "
        "Of two threads the sum is given: Python runs one at a time wherever a library does not let go of the interpreter.",
    )


def tables(report: Report, chosen: list, measured: dict) -> None:
    ours = measured.get("forebay")
    for case, title in CASES.items():
        rows = []
        for store in chosen:
            if store.name in measured:
                one, two = (measured[store.name][case][threads] for threads in ("1", "2"))
                cells = [shown(1e9 / one), shown(one / 1e3), shown(two / 1e3)]
                rows.append([store.label, *cells, *(ratios(ours, case, one, two) if ours else [])])
        report.text(f"## {title}")
        more = ["ns by Forebay's, 1 thread", "2 threads"] if ours else []
        report.table(["store", "ns a row, 1 thread", "thousand rows/s, 1 thread", "2 threads", *more], rows)
    if not ours:
        return
    own = [case for case in ours if case not in CASES and case != "runs"]
    if own:
        report.text("## Forebay's columns, without rows of Python")
        report.table(
            ["case", "ns a row, 1 thread", "thousand rows/s, 1 thread", "2 threads"],
            [[case, shown(1e9 / ours[case]["1"], 1), *(shown(ours[case][n] / 1e3) for n in ("1", "2"))] for case in own],
        )


def ratios(ours: dict, case: str, one: float, two: float) -> list[str]:
    """How many times Forebay's time a contender takes."""
    return [f"{ours[case]['1'] / one:.2f}", f"{ours[case]['2'] / two:.2f}"]


def waits(report: Report, places: dict, source: Path, rows: int) -> list[dict]:
    found = []
    for count, whom in WAITS.items():
        for name, how in whom:
            if count > rows or name not in places and name != "none":
                continue
            say(f"waits: {name}, {count:,} keys, {how}")
            try:
                answer = child(how, name, places["forebay" if name == "none" else name], source, count, WAIT_ROUNDS, 1)
            except Failed as why:
                report.failed(f"waits beside {name}", why)
                continue
            found.append({"store": name, "keys": count, "collected": how == "wait", **answer})
    return found


def wait_table(report: Report) -> None:
    labels = {store.name: f"{store.label}.get_many" for store in python_stores.STORES} | {"none": "nothing"}
    report.text(
        "## What other threads wait for",
        "A thread sleeps 1 ms again and again, and notes by how much it woke late, while another calls `get_many`, "
        f"{WAIT_ROUNDS} times one after the other. What the system tells that the thread then waited for a processor is taken off; the last column has it. "
        "What comes after a call, when the dicts are given back, which Python does in one go, is left out. Python's collector, which lets nobody run while it looks at "
        "all new dicts, is switched off where it says so, and on in all others.",
    )
    report.table(
        ["meanwhile", "keys", "a call, ms", "woke late, ms: median", "p99", "most", "most, with waits for a processor"],
        [
            [labels[w["store"]] + ("" if w["collected"] else ", no collector"), f"{w['keys']:,}", "-" if w["store"] == "none" else shown(w["call_ms"]),
             *(shown(w[key], 2) for key in ("p50_ms", "p99_ms", "max_ms", "max_in_all_ms"))]
            for w in report.body["waits"]
        ],
    )
    report.targets([
        (f"most that another thread waits, {w['keys']:,} keys" + ("" if w["collected"] else ", no collector"), w["max_ms"], WAIT_TARGET_MS, " ms")
        for w in report.body["waits"] if w["store"] == "forebay"
    ])


if __name__ == "__main__":
    main()
