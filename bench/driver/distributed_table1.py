"""The bulk insertion paper's table 1 on one machine: the same packets uploaded as a file, put record by record, put by
Spark's tasks, and built as runs by Spark's tasks. The tasks have 1, 2 and 4 workers."""

import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path

import common
import distributed_s3
import forebay_cli
import packets
import redis
from common import BENCH, DATA, Done, Failed, Process, Report, median_of, run, say, shown
from distributed_s3 import object_store
from spark_process import Spark

WORKERS = (1, 2, 4)
PIPELINE = 100
#: Of the live table, so that writers do not meet in one.
PARTITIONS = 8
DURABILITY = "os"
PORT, HTTP_PORT, NODE_PORT, NODE_HTTP_PORT = 17491, 17492, 17493, 17494
WARM_ROWS = 20_000


class Plan:
    """What is to be measured, and with how much."""

    def __init__(self, options, done: Done, run: bool):
        self.rows = 500_000 if options.trial else 5_000_000
        self.put_seconds = 3 if options.trial else 20
        self.rounds, self.done, self.run = options.rounds, done, run

    def key(self, *words) -> str:
        return Done.key("table1", self.rows, *words)

    def uploads(self) -> list[str]:
        return [self.key("upload", number) for number in range(self.rounds)]

    def puts(self, workers: int, at_once: int) -> str:
        """Of the one client when there are no workers."""
        return self.key("puts", self.put_seconds, workers, at_once)

    def pushes(self, workers: int) -> list[str]:
        return [self.key("push", workers, number) for number in range(self.rounds)]

    def lacks(self, keys: list[str]) -> list[str]:
        return [key for key in keys if self.run and key not in self.done.results]

    def measure(self, report: Report, keys: list[str], what: str, one) -> None:
        """Those of the keys that are not there yet, by `one()` each."""
        for key in self.lacks(keys):
            say(f"table 1: {what}")
            try:
                self.done.put(key, one())
            except Failed as why:
                report.failed(f"table 1, {what}", why)


def measure(report: Report, options, done: Done, run: bool) -> None:
    plan = Plan(options, done, run)
    if run:
        common.need_disk(4 if options.trial else 8)
        file = packets.table(packets.Repeated(), plan.rows)
        upload(report, plan, file)
        for at_once in (1, PIPELINE):
            what = f"puts by one client, {at_once} at a time"
            plan.measure(report, [plan.puts(0, at_once)], what, lambda: puts_alone(plan, file, at_once))
        for workers in WORKERS:
            keys = [*plan.pushes(workers), *(plan.puts(workers, at_once) for at_once in (1, PIPELINE))]
            if plan.lacks(keys):
                try:
                    by_spark(report, plan, file, workers)
                except Failed as why:
                    report.failed(f"table 1, {workers} workers", why)
    write(report, plan)


@contextlib.contextmanager
def store_server():
    with tempfile.TemporaryDirectory(dir=DATA) as name:
        folder = Path(name)
        (folder / "server").mkdir()
        server = object_store.S3Server(folder / "server")
        try:
            yield server, folder
        finally:
            server.kill()


def upload(report: Report, plan: Plan, file: Path) -> None:
    if not plan.lacks(plan.uploads()):
        return
    with store_server() as (server, folder):
        directory = folder / "input"
        directory.mkdir()
        os.link(file, directory / file.name)

        def one() -> dict:
            os.sync()
            copy = distributed_s3.copy(server, "up", "input", directory, 6)
            out, errors = copy.communicate(timeout=600)
            if copy.returncode != 0:
                raise Failed(errors.decode(errors="replace")[-300:])
            return {"seconds": float(out)}

        plan.measure(report, plan.uploads(), "upload of the file", one)


# Puts.


@contextlib.contextmanager
def live_server(plan: Plan):
    """A server with an empty live table, in order as the paper's is."""
    store = common.fresh("table1-live")
    repeated = packets.Repeated()
    step = plan.rows // PARTITIONS
    starts = [packets.table_key(repeated.time_us(at * step), at * step) for at in range(1, PARTITIONS)]
    boundaries = [word for start in starts for word in ("--boundary", start)]
    live = ["--mode", "live", "--order", "ordered", "--durability", DURABILITY]
    run([forebay_cli.BINARY, "--store", store, "create", "--create", "packets", *live, *boundaries])
    with forebay_cli.serve(store, PORT, HTTP_PORT, DATA / "serve.log") as server:
        client = redis.Redis(port=PORT)
        server.wait_until(client.ping, 30, "forebay serve")
        yield client


def puts_alone(plan: Plan, file: Path, at_once: int) -> dict:
    with live_server(plan) as client:
        words = [sys.executable, BENCH / "driver" / "puts.py", file, PORT, at_once, plan.put_seconds]
        found = common.run_json(words, plan.put_seconds + 120)
        return checked(client, {**found, "seconds": found["ended"] - found["began"]})


def checked(client: redis.Redis, found: dict) -> dict:
    """The rate, once what was put is found there."""
    check(client, found.pop("some"))
    return {"done": found["done"], "seconds": found["seconds"], "rate": found["done"] / found["seconds"]}


def check(client: redis.Redis, numbers) -> None:
    repeated = packets.Repeated()
    for number in numbers:
        value = client.get("packets:" + packets.table_key(repeated.time_us(number), number))
        if value != repeated.summary(number).encode():
            raise Failed(f"packet {number} is {value}")


# What Spark's workers do.


def by_spark(report: Report, plan: Plan, file: Path, workers: int) -> None:
    with store_server() as (server, folder):
        say(f"table 1: Spark, {workers} workers, starts")
        warm = packets.table(packets.Repeated(), WARM_ROWS)
        environment = object_store.RemoteStore(server, folder / "machine", "warm").environment()
        with Spark(workers, environment) as spark:
            spark.do("push", file=warm, store=f"s3://{object_store.BUCKET}/warm", work_dir=folder / "work")
            for at_once in (1, PIPELINE):
                what = f"puts by {workers} workers, {at_once} at a time"
                one = lambda: puts_by_tasks(plan, spark, file, warm, workers, at_once)  # noqa: E731
                plan.measure(report, [plan.puts(workers, at_once)], what, one)
            number = iter(range(100))
            one = lambda: pushed(plan, spark, server, folder / f"round-{next(number)}", file, warm)  # noqa: E731
            plan.measure(report, plan.pushes(workers), f"run building by {workers} workers", one)


def puts_by_tasks(plan: Plan, spark: Spark, file: Path, warm: Path, workers: int, at_once: int) -> dict:
    words = {"tasks": workers, "port": PORT, "at_once": at_once}
    with live_server(plan):
        spark.do("puts", file=warm, seconds=1, **words)
    with live_server(plan) as client:
        found = spark.do("puts", file=file, seconds=plan.put_seconds, **words)
        if found["tasks"] != workers:
            raise Failed(f"{found['tasks']} tasks put, not {workers}")
        return checked(client, found)


def pushed(plan: Plan, spark: Spark, server, folder: Path, file: Path, warm: Path) -> dict:
    """A push into a table that a node serves already, a small one: the node asks for news of that every half second."""
    store = object_store.RemoteStore(server, folder, folder.name)
    small = ["--key", packets.TABLE_KEY, "--value", "value", "--order", "ordered", "--quiet"]
    run([forebay_cli.BINARY, "push", "--create", "packets", warm, *small], env=store.environment())
    words = ["serve", "--listen", f"127.0.0.1:{NODE_PORT}", "--http", f"127.0.0.1:{NODE_HTTP_PORT}", "--cache", folder / "cache"]
    repeated = packets.Repeated()
    with Process([forebay_cli.BINARY, *words], DATA / "node.log", env=store.environment()) as node:
        client = redis.Redis(port=NODE_PORT)
        node.wait_until(lambda: check(client, [WARM_ROWS]) is None, 60, "the node")
        os.sync()
        last = {"key": packets.table_key(repeated.time_us(plan.rows), plan.rows), "value": repeated.summary(plan.rows)}
        url = store.environment()["FOREBAY_STORE"]
        found = spark.do("push", file=file, store=url, work_dir=folder / "work", port=NODE_PORT, **last)
        if found["rows"] != plan.rows or not found["swapped"]:
            raise Failed(f"the push gave {json.dumps(found)}")
        check(client, range(1, plan.rows, max(1, plan.rows // 500)))
        return found


# The table.


def write(report: Report, plan: Plan) -> None:
    known = plan.done.results
    lines = {}
    for workers in WORKERS:
        line = {"upload": middle(known, plan.uploads(), "seconds")}
        for name, who in (("one", 0), ("parallel", workers)):
            for at_once, tail in ((1, ""), (PIPELINE, "_pipelined")):
                rate = known.get(plan.puts(who, at_once), {}).get("rate")
                line[f"{name}{tail}_rate"] = rate
                line[f"{name}{tail}"] = rate and plan.rows / rate
        for field in ("seconds", "served_seconds", "bytes"):
            line[f"push_{field}"] = middle(known, plan.pushes(workers), field)
        lines[workers] = line
    if not any(value for line in lines.values() for value in line.values()):
        return
    runs = {key: value for key, value in known.items() if key.startswith(plan.key())}
    report.body["table1"] = {"rows": plan.rows, "put_seconds": plan.put_seconds, "lines": lines, "runs": runs}
    tell(report, plan, lines)


def middle(known: dict, keys: list[str], field: str) -> float | None:
    return median_of([known[key] for key in keys if key in known]).get(field)


def tell(report: Report, plan: Plan, lines: dict) -> None:
    file = DATA / f"packets-{plan.rows}.parquet"
    size = f", a Parquet file of {file.stat().st_size / 1e6:.0f} MB" if file.exists() else ""
    report.text(
        f"## The paper's table 1: {plan.rows:,} packets by 1, 2 and 4 workers",
        "",
        f"Rows of parsed packets{size}; keys of 27 B (time and number), values of 43 B (addresses, ports, lengths). Seconds for "
        f"all rows; *puts* ran for {plan.put_seconds} s into an empty table, and their rate was **extrapolated** to all rows. "
        "Workers are Spark's (`local-cluster[W,1,1024]`: a JVM each, with a Python process). Its start is left out for puts "
        "and runs alike, and a small job of the same kind ran before.",
        "",
        "*One client*, *parallel puts*: redis-py with hiredis, SET, one command a round trip, into `forebay serve` with an ordered "
        f"live table of {PARTITIONS} partitions, whose log is left to the system (durability `{DURABILITY}`: the fastest there is, nothing is "
        f"synced); *pipelined*: {PIPELINE} SETs a round trip. One client does not get faster by more workers; its figure stands in "
        "each row. *Run building*: `forebay.spark.push` of the file to an S3 server, everything compared, until a node that had an earlier "
        "version answers with the last row of the new one. *With upload* adds what the paper adds (\"+17 min\"), though "
        "the file was read from the local disk, here and by the puts.",
    )

    def cells(line: dict) -> list:
        push, upload = line["push_served_seconds"], line["upload"]
        both = push and upload and push + upload
        names = ("upload", "one", "one_pipelined", "parallel", "parallel_pipelined")
        return [*(shown(line[name], 1) for name in names), shown(push, 1), shown(both, 1)]

    report.table(
        ["workers", "raw upload", "one client's puts", "pipelined", "parallel puts", "pipelined", "run building", "with upload"],
        [[workers, *cells(line)] for workers, line in lines.items()],
    )
    report.text("Records a second:")
    report.table(
        ["workers", "one client's puts", "pipelined", "parallel puts", "pipelined", "run building", "of it, until the push was done, s"],
        [
            [workers, *(shown(line[f"{name}_rate"]) for name in ("one", "one_pipelined", "parallel", "parallel_pipelined")),
             shown(line["push_served_seconds"] and plan.rows / line["push_served_seconds"]), shown(line["push_seconds"], 1)]
            for workers, line in lines.items()
        ],
    )
    report.targets([
        (f"run building / {what}, {workers} workers (at least {times} x as fast)",
         common.ratio(line["push_served_seconds"], line[name]), 1 / times, " x")
        for workers, line in lines.items() for what, name, times in (("one client's puts", "one", 10), ("parallel puts", "parallel", 5))
    ])
