"""Writes through the server beside Redis: SET and INCR with each durability."""

import re
import statistics

import forebay_cli
from common import DATA, Failed, Process, Report, fresh, run, say, shown

SERVER = ("taskset", "-c", "0")
CLIENT = ("taskset", "-c", "1")
FOREBAY_PORT, HTTP_PORT, REDIS_PORT = 17482, 17483, 17484
#: redis-benchmark asks for key:<12 digits> and counter:<12 digits>: the tables' names.
VALUES, COUNTERS = "key", "counter"
#: What is promised, in Forebay's words and in Redis's.
DURABILITIES = [("sync", "always"), ("1000ms", "everysec"), ("os", "no")]
RECORDS = 1_000_000


def measure(report: Report, options) -> None:
    if not forebay_cli.available() or options.only:
        return
    requests = 100_000 if options.trial else 1_000_000
    report.body["server"] = {}
    for ours, theirs in DURABILITIES:
        for name, server in (("redis", Redis(theirs)), ("forebay", Forebay(ours))):
            try:
                with server:
                    for test in ("set", "incr"):
                        for depth in (1, 16):
                            say(f"redis-benchmark {test}, pipeline {depth}, {name}, {server.durability}")
                            results = [redis_benchmark(server.port, test, requests, depth) for _ in range(options.rounds)]
                            report.body["server"][f"{test}-P{depth}-{ours}-{name}"] = results
            except Failed as why:
                report.failed(f"redis-benchmark, {name}, {server.durability}", why)
    tell(report, requests)


class Redis:
    port = REDIS_PORT

    def __init__(self, durability: str, where: tuple = SERVER):
        self.durability, self.where = durability, where

    def __enter__(self):
        directory = fresh("live-redis")
        self.server = Process(
            [*self.where, "redis-server", "--port", self.port, "--save", "", "--appendonly", "yes", "--appendfsync",
             self.durability, "--bind", "127.0.0.1", "--dir", directory],
            DATA / "redis.log",
        )
        self.server.wait_until(lambda: "PONG" in run(["redis-cli", "-p", self.port, "ping"]), 10, "redis-server")

    def __exit__(self, *_):
        self.server.stop()


class Forebay:
    port = FOREBAY_PORT

    def __init__(self, durability: str, where: tuple = SERVER, binary: str | None = None):
        self.durability, self.where, self.binary = durability, where, binary or forebay_cli.BINARY

    def __enter__(self):
        store = fresh("live-store")
        create = [self.binary, "--store", store, "create", "--create"]
        live = ["--mode", "live", "--order", "hashed", "--durability", self.durability]
        run([*create, VALUES, *live])
        run([*create, COUNTERS, *live, "--delta", "i64"])
        self.server = forebay_cli.serve(store, self.port, HTTP_PORT, DATA / "serve.log", self.where, binary=self.binary)
        self.server.wait_until(lambda: "PONG" in run(["redis-cli", "-p", self.port, "ping"]), 30, "forebay serve")
        return self

    def __exit__(self, *_):
        self.server.stop()


def redis_benchmark(port: int, test: str, requests: int, depth: int, records: int = RECORDS) -> dict:
    out = run(
        [*CLIENT, "redis-benchmark", "-p", port, "-t", test, "-r", records, "-d", 100, "-n", requests, "-c", 50,
         "-P", depth, "--csv"], 900,
    )
    if "ERR" in out:
        raise Failed(out.strip()[-200:])
    fields = [re.sub('"', "", field) for field in out.strip().splitlines()[-1].split(",")]
    # "test","rps","avg_latency_ms","min_latency_ms","p50","p95","p99","max"
    return {"rps": float(fields[1]), "p50_ms": float(fields[4]), "p99_ms": float(fields[6]), "max_ms": float(fields[7])}


def pauses(report: Report, options) -> None:
    """How long single writes wait while a large table is written to and merged."""
    if not forebay_cli.available() or options.only:
        return
    records, requests = (5_000_000, 500_000) if options.trial else (50_000_000, 2_000_000)
    report.body["pauses"] = {"records": records, "requests": requests, "servers": {}}
    rows = []
    for name, server in (("redis", Redis("everysec", ())), ("forebay", Forebay("1000ms", ()))):
        try:
            with server:
                say(f"{records:,} SETs of keys drawn at random, {name}")
                filled = redis_benchmark(server.port, "set", records, 64, records)
                waits = []
                for _ in range(options.rounds + 2):
                    say(f"{requests:,} more, one at a time, {name}")
                    waits.append(percentiles(server.port, requests, records))
        except Failed as why:
            report.failed(f"pauses, {name}", why)
            continue
        report.body["pauses"]["servers"][name] = {"filled_rps": filled["rps"], "waits": waits}
        cells = [" ".join(shown(wait[at], 1) for wait in waits) for at in ("p99", "p99.9", "p99.999", "most")]
        rows.append([name, shown(filled["rps"], 0), *cells])
    report.text(
        f"## Waits of single writes at {records:,} keys",
        "",
        f"{records:,} SETs of 100 B in pipelines of 64, keys drawn at random from as many; then {options.rounds + 2} times "
        f"{requests:,} SETs of such keys over 8 connections, one at a time, while what came before is merged. Milliseconds, one "
        "number a time. Servers and client share both cores.",
    )
    report.table(["server", "filled, a second", "p99", "p99.9", "p99.999", "longest"], rows)


def percentiles(port: int, requests: int, records: int) -> dict:
    out = run(
        ["redis-benchmark", "-p", port, "-t", "set", "-r", records, "-d", 100, "-n", requests, "-c", 8, "--precision", 3], 900,
    )
    counts = re.findall(r"<= ([0-9.]+) milliseconds \(cumulative count (\d+)\)", out)
    if "ERR" in out or not counts:
        raise Failed(out.strip()[-200:])
    counts = [(float(ms), int(count)) for ms, count in counts]

    def at(share: float) -> float:
        return min(ms for ms, count in counts if count >= share * requests)

    return {"p99": at(0.99), "p99.9": at(0.999), "p99.999": at(0.99999), "most": at(1)}


def tell(report: Report, requests: int) -> None:
    got = report.body["server"]
    report.text(
        "## The server's writes beside Redis",
        "",
        f"redis-benchmark, {requests:,} requests over {RECORDS:,} keys, values of 100 B, 50 connections; servers on core 0, the "
        "client on core 1. Redis keeps an append-only file, Forebay a log; acknowledged when synced (Redis `always`), synced "
        "every second (`everysec`), or left to the system (`no`).",
    )

    def cell(test, depth, ours, name, field, digits):
        results = got.get(f"{test}-P{depth}-{ours}-{name}")
        return shown(statistics.median(r[field] for r in results), digits) if results else "-"

    report.table(
        ["command, pipeline, durability", "Redis, a second", "Forebay, a second", "Redis p99 ms", "Forebay p99 ms"],
        [
            [f"{test.upper()}, {depth}, {ours}", *(cell(test, depth, ours, name, "rps", 0) for name in ("redis", "forebay")),
             *(cell(test, depth, ours, name, "p99_ms", 2) for name in ("redis", "forebay"))]
            for test in ("set", "incr") for depth in (1, 16) for ours, _ in DURABILITIES
        ],
    )
