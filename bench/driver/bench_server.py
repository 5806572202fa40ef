"""`make bench-server`: the server beside Redis, memory that must stay, swaps and pushes under load.

The server under test runs on core 0, its clients on core 1, both by taskset.
"""

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import big_swap
import common
import draw
import forebay_cli
from common import DATA, HARNESS, Failed, Report, ensure_set, harness, memory_of, ratio, run, say, shown
from parquet import Redis, write_parquet

SERVER = ("taskset", "-c", "0")
CLIENT = ("taskset", "-c", "1")
FOREBAY_PORT, HTTP_PORT, REDIS_PORT = 17479, 17480, 17481
TABLE = "key"


def main() -> None:
    options = common.arguments(__doc__)
    if not forebay_cli.available():
        sys.exit("bench: set FOREBAY to the forebay binary (make bench-server does)")
    common.need_disk(4 if options.trial else 16)
    records = 1_000_000 if options.trial else 10_000_000
    parts = options.parts.split(",") if options.parts else ["redis", "swaps", "pushes"] + ["big"] * options.big
    report = Report("server", "The server", options)
    if options.parts:
        report.name = "-".join([report.name, *parts])
        report.body["command"] += f' ARGS="--parts {options.parts}"'
    report.body["versions"] = {"Redis": common.package_version("redis-server")}
    report.text(
        f"{records:,} records: `key:` and 12 digits, values of 100 B, the same in both servers. "
        "Servers on core 0, clients on core 1 (taskset), loopback."
    )
    sets = [ensure_set(f"s{records // 1_000_000}m-v100{tail}", records, 100, "decimal", salt)
            for salt, tail in ((0, ""), (1, "-next"))]
    for data in sets:
        write_parquet(data, data.with_suffix(".parquet"))
    store = DATA / "server-store"
    shutil.rmtree(store, ignore_errors=True)
    try:
        say(f"pushing two versions of {records:,} rows")
        report.body["pushes"] = [forebay_cli.push(store, TABLE, data.with_suffix(".parquet")) for data in sets]
        with forebay_cli.serve(store, FOREBAY_PORT, HTTP_PORT, DATA / "serve.log", SERVER) as server:
            server.wait_until(lambda: answers(FOREBAY_PORT, f"{TABLE}:{0:012d}"), 60, "forebay serve")
            if "redis" in parts:
                beside_redis(report, server, sets[0], records, options)
            if "swaps" in parts:
                swaps_under_load(report, store, records, options)
            if "pushes" in parts:
                push_under_load(report, store, sets, records, options)
        if "big" in parts:
            shutil.rmtree(store, ignore_errors=True)
            big_swap.measure(report, Load, (FOREBAY_PORT, HTTP_PORT), TABLE, SERVER, CLIENT,
                             200_000 if options.trial else 10_000_000)
    finally:
        shutil.rmtree(store, ignore_errors=True)
    report.write((lambda base: draw.server(report.body, base)) if "redis" in parts else None)


def answers(port: int, key: str) -> str:
    return run(["redis-cli", "-p", port, "GET", key]).strip()


def beside_redis(report: Report, server, data: Path, records: int, options) -> None:
    commands = data.with_suffix(".resp")
    if not commands.exists():
        harness("export", "--data", data, "--format", "resp", "--out", commands)
    with Redis(REDIS_PORT, SERVER) as redis:
        say("loading Redis")
        redis.load(commands)
        throughput(report, server, redis, records, options)
        memory(report, server, redis, records)


def versions_of(store: Path) -> list[int]:
    return sorted(int(entry["version"]) for entry in forebay_cli.versions(store, TABLE))


def throughput(report: Report, server, redis, records: int, options) -> None:
    results: dict = {}
    for depth in (1, 16):
        requests = (200_000 if depth == 1 else 1_000_000) * (1 if options.trial else 5)
        for number in range(options.rounds):
            # Alternating, the first of a round in turn.
            order = [("redis", REDIS_PORT, redis.server.pid), ("forebay", FOREBAY_PORT, server.pid)]
            for name, port, pid in order if number % 2 == 0 else order[::-1]:
                say(f"redis-benchmark, pipeline {depth}, {name}")
                try:
                    answer = redis_benchmark(port, pid, records, requests, depth)
                    results.setdefault(f"{name}-P{depth}", []).append(answer)
                except Failed as why:
                    report.failed(f"redis-benchmark -P {depth}, {name}", why)
    report.body["throughput"] = {
        key: {
            "median": statistics.median(r["rps"] for r in runs),
            "p50_ms": statistics.median(r["p50_ms"] for r in runs),
            "p99_ms": statistics.median(r["p99_ms"] for r in runs),
            "server_cpu_us": statistics.median(r["server_cpu_us"] for r in runs),
            "runs": runs,
        }
        for key, runs in results.items()
    }
    report.text("## Throughput: redis-benchmark -t get -c 50")
    report.table(
        ["server and pipeline", "GET/s", "p50 ms", "p99 ms", "server's processor time a GET, us"],
        [[key, shown(r["median"]), shown(r["p50_ms"], 3), shown(r["p99_ms"], 3), shown(r["server_cpu_us"], 2)]
         for key, r in report.body["throughput"].items()],
    )
    got = report.body["throughput"]
    rows = []
    for depth, wanted in ((1, 1.0), (16, 1.5)):
        ours, theirs = (got.get(f"{name}-P{depth}", {}).get("median") for name in ("forebay", "redis"))
        # As Redis's share of our throughput, so that less is better as in all targets.
        rows.append((f"Redis's throughput / ours, pipeline {depth} (ours at least {wanted} x)",
                     ratio(theirs, ours), round(1 / wanted, 3), " x"))
    report.targets(rows)


def redis_benchmark(port: int, pid: int, records: int, requests: int, depth: int) -> dict:
    before = cpu_seconds(pid)
    out = run(
        [*CLIENT, "redis-benchmark", "-p", port, "-t", "get", "-r", records, "-n", requests, "-c", 50,
         "-P", depth, "--csv"], 120,
    )
    fields = [re.sub('"', "", field) for field in out.strip().splitlines()[-1].split(",")]
    # "test","rps","avg_latency_ms","min_latency_ms","p50","p95","p99","max"
    used = (cpu_seconds(pid) - before) / requests * 1e6
    return {"rps": float(fields[1]), "p50_ms": float(fields[4]), "p99_ms": float(fields[6]), "server_cpu_us": used}


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used, its own and the kernel's for it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(report: Report, server, redis, records: int) -> None:
    ours, theirs = memory_of(server.pid), memory_of(redis.server.pid)
    report.body["memory"] = {"forebay": ours, "redis": theirs}
    report.text(
        "## Memory that must stay",
        "",
        "Redis holds all of it as its own (anonymous) memory. Forebay's own memory is its index and buffers; its pages "
        "are the system's cache of immutable files, which the kernel takes back when others need the room, at the price "
        "of a device read the next time. Resident counts both.",
    )
    report.table(
        ["", "must stay (anonymous), MB", "bytes a record", "file pages mapped, MB", "resident, MB"],
        [
            [name, shown(m["anonymous_bytes"], 1, 1e-6), shown(m["anonymous_bytes"] / records, 2),
             shown(m["file_bytes"], 1, 1e-6), shown(m["resident_bytes"], 1, 1e-6)]
            for name, m in (("forebay serve", ours), ("redis-server", theirs))
        ],
    )


class Load:
    """`bench load` on the client's core for some seconds, beside what the block does."""

    def __init__(self, records: int, seconds: float):
        self.command = [
            *CLIENT, str(HARNESS), "load", "--port", str(FOREBAY_PORT), "--table", TABLE, "--records", str(records),
            "--seconds", str(seconds), "--salts", "0,1",
        ]

    def __enter__(self):
        self.child = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.start = time.monotonic()
        return self

    def now(self) -> float:
        return time.monotonic() - self.start

    def __exit__(self, kind, *_):
        if kind:
            self.child.kill()
        out, errors = self.child.communicate()
        if not kind:
            if self.child.returncode != 0:
                raise Failed(f"bench load: {errors.strip()[-300:]}")
            self.result = json.loads(out)


def swaps_under_load(report: Report, store: Path, records: int, options) -> None:
    """Back and forth between the two versions, one swap every four seconds."""
    swaps = 4 if options.trial else 12
    both = versions_of(store)[-2:]
    say(f"{swaps} swaps under load")
    warm(records, store, both)
    took, at = [], []
    try:
        with Load(records, 4 * swaps + 3) as load:
            for number in range(swaps):
                time.sleep(max(0, 3 + 4 * number - load.now()))
                at.append(load.now())
                took.append(forebay_cli.swap(store, TABLE, both[number % 2], CLIENT))
        result = load.result
    except Failed as why:
        report.failed("swaps under load", why)
        return
    changes = result["swaps"]
    ratios = [s["p99_around_us"] / s["p99_before_us"] for s in changes if s["p99_before_us"]]
    seen = [min((s["at"] - a for s in changes if s["at"] >= a), default=None) for a in at]
    seen = [s for s in seen if s is not None and s < 4]
    report.body["swap"] = {
        **result, "swaps_at": [s["at"] for s in changes], "command_seconds": took, "seen_after_seconds": seen,
        "p99_ratio_median": statistics.median(ratios) if ratios else None,
        "p99_ratio_worst": max(ratios, default=None),
    }
    report.text(
        "## Swaps under load",
        "",
        f"Four connections read as fast as they are answered (each answer checked; every 16th request an MGET of 8 keys) "
        f"while the table swaps between two versions of {records:,} records, both in the page cache. The command runs on "
        "the client's core.",
    )
    report.table(
        ["requests", "errors", "replies of mixed versions", "swaps seen", "p50 us", "p99 us", "p99.9 us", "max us",
         "swap command ms (median)", "seen by clients after ms (median)"],
        [[shown(result["requests"]), result["errors"], result["mixed"], len(changes), result["p50_us"], result["p99_us"],
          result["p999_us"], shown(result["max_us"]), shown(statistics.median(took), 1, 1000),
          shown(statistics.median(seen), 1, 1000) if seen else "-"]],
    )
    report.targets([
        ("p99 in the second around a swap / before it (median of swaps)",
         report.body["swap"]["p99_ratio_median"], 1.2, " x"),
        ("failed or wrong answers", result["errors"] + result["mixed"], 0, ""),
    ])


def warm(records: int, store: Path, versions: list[int]) -> None:
    """Both versions into the page cache, by reading their files; and a few seconds of load."""
    harness_files = sorted(store.rglob("*.run"))
    for path in harness_files:
        with path.open("rb") as file:
            while file.read(1 << 22):
                pass
    for version in versions:
        forebay_cli.swap(store, TABLE, version)
        with Load(records, 2):
            pass


#: Without a limit, and the `--rate`s measured beside it.
RATES = [None, "200M", "50M"]


def push_under_load(report: Report, store: Path, sets: list, records: int, options) -> None:
    """Pushes on the same two cores while clients read: what they do to the p99, by `--rate`."""
    results: dict = {}
    for rate in RATES:
        name = f"--rate {rate}" if rate else "no limit"
        say(f"a push under load, {name}")
        try:
            results[name] = one_push_under_load(store, sets[0], records, rate, options)
        except Failed as why:
            report.failed(f"push under load, {name}", why)
    report.body["push_under_load"] = results
    report.text(
        "## Pushes under load",
        "",
        f"The same readers while `forebay push` builds, verifies and swaps {records:,} rows on the same two cores. "
        "`--rate` bounds the bytes of records that it reads and writes in a second. Medians over slices of 100 ms; "
        f"{sum(r['errors'] for r in results.values())} errors, {sum(r['mixed'] for r in results.values())} mixed replies.",
    )
    report.table(
        ["push", "push took s", "requests/s before", "during", "p50 us before", "during", "p99 us before", "during",
         "worst slice's p99 us"],
        [[name, shown(r["push"]["seconds"], 1),
          *(shown(r[when][what]) for what in ("rps", "p50_us", "p99_us") for when in ("before", "during")),
          shown(r["during"]["worst_p99_us"])] for name, r in results.items()],
    )


def one_push_under_load(store: Path, data: Path, records: int, rate: str | None, options) -> dict:
    quiet = 5.0
    times: dict = {}

    def push():
        try:
            more = ("--rate", rate) if rate else ()
            times["report"] = forebay_cli.push(store, TABLE, data.with_suffix(".parquet"), *more)
        except Failed as why:
            times["failed"] = why

    seconds = quiet * 2 + (10 if options.trial else 60)
    with Load(records, seconds) as load:
        time.sleep(quiet)
        begin = load.now()
        thread = threading.Thread(target=push)
        thread.start()
        thread.join()
        end = load.now()
    if "failed" in times:
        raise times["failed"]
    return {
        "before": slices(load.result, 0.5, begin), "during": slices(load.result, begin, min(end, seconds)),
        "push": times["report"], "errors": load.result["errors"], "mixed": load.result["mixed"],
    }


def slices(result: dict, start: float, end: float) -> dict:
    these = [s for s in result["timeline"] if start < s["second"] <= end and s["requests"]]
    if not these:
        raise Failed("no requests in that time")
    return {
        "rps": statistics.mean(s["requests"] for s in these) * 10,
        "p50_us": statistics.median(s["p50_us"] for s in these),
        "p99_us": statistics.median(s["p99_us"] for s in these),
        "worst_p99_us": max(s["p99_us"] for s in these),
    }


if __name__ == "__main__":
    main()
