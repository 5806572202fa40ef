"""`make bench-profiles BINARIES='now=FILE other=FILE'`: several builds of the binary, in turn: pushes, GETs, live writes.

The builds differ in Cargo's profile; the ratios are those of rounds, each build's beside the first one's of the same round.
"""

import os
import shutil
import statistics

import common
import forebay_cli
from bench_server import CLIENT, SERVER, cpu_seconds
from bench_sources import push, write
from common import DATA, Report, fresh, run, say, shown

PORT, HTTP_PORT = 17485, 17486
RECORDS = 1_000_000
#: What redis-benchmark's keys begin with (key:<12 digits>), so the name of the tables.
TABLE = "key"
SOURCES = {"push of Parquet": ("parquet", 4_000_000), "push of CSV": ("csv", 2_000_000)}


def main() -> None:
    options = common.arguments(__doc__, rounds=7)
    common.need_disk(6)
    binaries = dict(word.split("=", 1) for word in os.environ["BINARIES"].split())
    report = Report("profiles", "The binary as several profiles build it", options)
    tenth = 10 if options.trial else 1
    sources = {what: write(kind, count // tenth) for what, (kind, count) in SOURCES.items()}
    stores = {name: batch_store(name, binary) for name, binary in binaries.items()}
    runs: dict[str, dict[str, list[float]]] = {}

    def put(what: str, name: str, value: float) -> None:
        runs.setdefault(what, {}).setdefault(name, []).append(value)

    for number in range(options.rounds):
        # The first of a round in turn.
        order = list(binaries.items())
        order = order[number % len(order):] + order[: number % len(order)]
        say(f"round {number + 1} of {options.rounds}")
        for name, binary in order:
            for what, source in sources.items():
                put(f"{what}: processor s", name, push(binary, source)["cpu_s"])
            for what, test, store in (("GET", "get", stores[name]), ("live SET", "set", live_store(binary))):
                rate, used = served(binary, store, test, 6_000_000 // tenth if test == "get" else 2_000_000 // tenth)
                put(f"{what}: a second", name, rate)
                put(f"{what}: server's processor us", name, used)
    for store in stores.values():
        shutil.rmtree(store)
    tell(report, binaries, runs)
    report.write()


def batch_store(name: str, binary: str):
    """A million rows with values of 100 bytes under redis-benchmark's keys."""
    import pyarrow
    import pyarrow.parquet

    source = DATA / "profiles.parquet"
    rows = pyarrow.table({"k": [f"{number:012}" for number in range(RECORDS)], "v": [f"{number:0100}" for number in range(RECORDS)]})
    pyarrow.parquet.write_table(rows, source)
    store = fresh(f"profiles-{name}")
    run([binary, "--quiet", "--store", store, "push", "--create", TABLE, source, "--key", "{k}", "--value", "v"])
    return store


def live_store(binary: str):
    store = fresh("profiles-live")
    run([binary, "--store", store, "create", "--create", TABLE, "--durability", "1000ms"])
    return store


def served(binary: str, store, test: str, requests: int) -> tuple[float, float]:
    """Requests a second, and the server's processor microseconds for one; the first tenth warms it."""
    forebay_cli.BINARY = binary
    with forebay_cli.serve(store, PORT, HTTP_PORT, DATA / "profiles.log", SERVER) as server:
        server.wait_until(lambda: "PONG" in run(["redis-cli", "-p", PORT, "ping"]), 30, "forebay serve")
        words = [*CLIENT, "redis-benchmark", "-p", PORT, "-t", test, "-r", RECORDS, "-d", 100, "-c", 50, "-P", 64, "--csv"]
        run([*words, "-n", requests // 10])
        before = cpu_seconds(server.pid)
        answer = run([*words, "-n", requests])
        used = cpu_seconds(server.pid) - before
    rate = float(answer.strip().splitlines()[-1].split(",")[1].strip('"'))
    return rate, used / requests * 1e6


def tell(report: Report, binaries: dict, runs: dict) -> None:
    first = next(iter(binaries))
    report.body["runs"] = runs
    report.body["bytes"] = {name: os.path.getsize(binary) for name, binary in binaries.items()}
    report.text(
        f"redis-benchmark with 64 commands a pipeline and 50 connections, over {RECORDS:,} keys with values of 100 bytes; "
        "the server on core 0, the client on core 1. Beside each median, the median of the rounds' ratios to the first build."
    )

    def cell(what: str, name: str) -> str:
        own, other = runs[what][name], runs[what][first]
        digits = 0 if "a second" in what else 3 if " us" in what else 2
        text = shown(statistics.median(own), digits)
        return text if name == first else f"{text} ({statistics.median(a / b for a, b in zip(own, other, strict=True)):.3f} x)"

    report.table(["", *binaries], [[what, *(cell(what, name) for name in binaries)] for what in runs])
    report.table(["", *binaries], [["MB of the binary", *(shown(report.body["bytes"][name], 1, 1e-6) for name in binaries)]])


if __name__ == "__main__":
    main()
