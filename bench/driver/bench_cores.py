"""`make bench-cores`: how pushes, GETs of a batch table and SETs of a live one grow with the processors that Forebay may use.

A push runs on the first 1, 2, 4... cores (taskset). A server has as many threads on as many cores, its clients
(redis-benchmark) all other ones. So half of the cores are the most that is measured. FOREBAY names the forebay binary;
`make bench-cores` sets it. `--records` is how many rows are pushed. `--measured FILE` measures nothing: it makes the
report of a JSON file that another machine's run left.
"""

import json
import os
import shutil
import socket
import sys
from pathlib import Path

import common
import forebay_cli
from common import DATA, Failed, Report, run, say, shown

ROWS, VALUE_BYTES = 10_000_000, 100
PORT, HTTP_PORT = 17491, 17492
PIPELINE, CLIENTS_A_CORE, REQUESTS_A_CORE = 16, 16, 3_000_000
PARTS = ("push", "get", "set")


def cores_of(most: int) -> list:
    found = [1 << power for power in range(most.bit_length()) if 1 << power <= most]
    return found if found[-1] == most else [*found, most]


def pinned(first: int, count: int) -> tuple:
    return ("taskset", "-c", f"{first}-{first + count - 1}")


def source(rows: int) -> Path:
    """Keys in random order, values that do not compress; written in pieces, so that it takes little memory."""
    import numpy
    import pyarrow
    import pyarrow.parquet

    path = DATA / f"cores-{rows}.parquet"
    if path.exists():
        return path
    say(f"writing {rows:,} rows of {VALUE_BYTES} B")
    chance = numpy.random.default_rng(1)
    schema = pyarrow.schema([("k", pyarrow.string()), ("v", pyarrow.string())])
    unfinished = path.with_suffix(".unfinished")
    order = chance.permutation(rows)
    with pyarrow.parquet.ParquetWriter(unfinished, schema, compression="none", use_dictionary=False) as writer:
        for start in range(0, rows, 500_000):
            numbers = order[start:start + 500_000]
            keys = numpy.char.zfill(numbers.astype(str), 12)
            bytes_ = chance.integers(33, 127, len(numbers) * VALUE_BYTES, numpy.uint8).tobytes()
            offsets = numpy.arange(0, (len(numbers) + 1) * VALUE_BYTES, VALUE_BYTES, dtype=numpy.int32)
            values = pyarrow.Array.from_buffers(pyarrow.string(), len(numbers), [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(bytes_)])
            writer.write_table(pyarrow.table([pyarrow.array(keys), values], schema=schema))
    unfinished.rename(path)
    return path


def pushes(rows: int, rounds: int, report: Report) -> list:
    found, data = [], source(rows)
    for cores in cores_of(os.cpu_count()):
        for _ in range(rounds):
            store = common.fresh("cores-push")
            try:
                done = forebay_cli.push(store, "b", data, prefix=pinned(0, cores))
                found.append({"cores": cores, "seconds": done["seconds"], "rows_per_s": rows / done["seconds"], "cpu_seconds": done["cpu_seconds"],
                              "peak_bytes": done["peak_rss_bytes"]})
                say(f"push, {cores} cores: {done['seconds']:.1f} s, {done['cpu_seconds']:.1f} s of processors")
            except Failed as why:
                report.failed(f"push with {cores} cores", why)
            shutil.rmtree(store, ignore_errors=True)
    return found


def commands(rows: int, rounds: int, parts: set, report: Report) -> list:
    found, most = [], os.cpu_count()
    store = common.fresh("cores-serve")
    forebay_cli.push(store, "b", source(rows))
    live = ["create", "--create", "l", "--mode", "live", "--durability", "os", "--partitions", 64]
    run([forebay_cli.BINARY, "--store", store, *live])
    for cores in cores_of(max(1, most // 2)):
        with forebay_cli.serve(store, PORT, HTTP_PORT, DATA / "cores.log", pinned(0, cores), "--threads", cores) as server:
            server.wait_until(is_there, 60, "forebay serve")
            for part, words in (("get", ["GET", "b:__rand_int__"]), ("set", ["SET", "l:__rand_int__", "x" * VALUE_BYTES])):
                for _ in range(rounds if part in parts else 0):
                    try:
                        found.append(asked(part, words, cores, most - cores, rows, server.pid))
                    except Failed as why:
                        report.failed(f"{part} with {cores} cores", why)
    shutil.rmtree(store, ignore_errors=True)
    return found


def asked(part: str, words: list, cores: int, others: int, rows: int, pid: int) -> dict:
    requests = REQUESTS_A_CORE * cores // (10 if rows < ROWS else 1)
    before = cpu_seconds(pid)
    out = run([*pinned(cores, max(1, others)), "redis-benchmark", "-p", PORT, "--threads", max(1, others), "-c", CLIENTS_A_CORE * max(cores, others),
               "-P", PIPELINE, "-r", rows, "-n", requests, "--csv", *words], 200)
    # The words of the command, in which there are no commas, then commands a second.
    rate = float(out.strip().splitlines()[-1].split(",")[1].strip('"'))
    used = cpu_seconds(pid) - before
    say(f"{part}, {cores} cores: {rate:,.0f} a second, {used / requests * 1e6:.2f} us of processors each")
    return {"part": part, "cores": cores, "per_s": rate, "cpu_us": used / requests * 1e6, "clients_cores": others}


def is_there() -> bool:
    with socket.create_connection(("127.0.0.1", PORT), 1) as connection:
        connection.sendall(b"EXISTS b:000000000001\r\n")
        return connection.recv(16) == b":1\r\n"


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def medians(runs: list, field: str) -> dict:
    found = {}
    for cores in sorted({one["cores"] for one in runs}):
        found[cores] = common.median_of([one for one in runs if one["cores"] == cores])
    return {cores: one[field] for cores, one in found.items()}


def tell(report: Report) -> None:
    body = report.body
    report.text(
        f"{body['rows']:,} rows: keys of 12 digits in random order, values of {VALUE_BYTES} B that do not compress. `forebay push` on the first cores; `forebay serve "
        f"--threads N` on as many, its clients (`redis-benchmark -P {PIPELINE}`) on all others. GETs of the batch table, SETs of a live one with `--durability os` and "
        "64 partitions, keys at random."
    )
    of = {"push": medians(body["pushes"], "rows_per_s")}
    cpu = {"push": medians(body["pushes"], "cpu_seconds")}
    for part in ("get", "set"):
        runs = [one for one in body["commands"] if one["part"] == part]
        of[part], cpu[part] = medians(runs, "per_s"), medians(runs, "cpu_us")
    body["by_cores"] = of
    cell = lambda part, cores: shown(of[part].get(cores))  # noqa: E731
    times = lambda part, cores: shown(common.ratio(of[part].get(cores), of[part].get(1)), 2)  # noqa: E731
    asked = lambda part, cores: [cell(part, cores), times(part, cores), shown(cpu[part].get(cores), 2), used(of, cpu, part, cores)]  # noqa: E731
    heads = ["x one core", "us each", "cores used"]
    report.table(
        ["cores", "rows pushed a second", "x one core", "processor s", "GET/s", *heads, "SET/s", *heads],
        [[cores, cell("push", cores), times("push", cores), shown(cpu["push"].get(cores), 1), *asked("get", cores), *asked("set", cores)]
         for cores in sorted({core for part in of.values() for core in part})],
    )
    report.text(
        "*Cores used* is the server's processor time. Where it is less than the server has, clients took the time, or waiting for each other; where a command "
        "takes more processor time than with one core, threads were in each other's way."
    )


def used(of: dict, cpu: dict, part: str, cores: int) -> str:
    rate = of[part].get(cores)
    return shown(rate and rate * cpu[part][cores] / 1e6, 1)


def main() -> None:
    words = {"metavar": "FILE", "default": "", "help": "make the report of what another machine measured"}
    options = common.arguments(__doc__, rounds=1, more=lambda parser: parser.add_argument("--measured", **words))
    report = Report("cores", "Pushes, reads and writes by cores", options)
    if options.measured:
        report.body = json.loads(Path(options.measured).read_text())
        report.started -= report.body["seconds"]
    else:
        measure(report, options)
    tell(report)
    import draw_cores

    report.write(lambda base: draw_cores.cores(report.body, base))


def measure(report: Report, options) -> None:
    if not forebay_cli.available():
        sys.exit("bench: set FOREBAY to the forebay binary (make bench-cores does)")
    parts = set(common.picked(options.parts, "part", PARTS))
    rows = (options.records or ROWS) // (10 if options.trial else 1)
    DATA.mkdir(exist_ok=True)
    report.body["rows"] = rows
    report.body["pushes"] = pushes(rows, options.rounds, report) if "push" in parts else []
    report.body["commands"] = commands(rows, options.rounds, parts, report) if parts & {"get", "set"} else []
    if kept := os.environ.get("BENCH_MEASURED"):
        report.body["seconds"] = 0
        Path(kept).write_text(json.dumps({**report.body, "failures": report.failures}))


if __name__ == "__main__":
    main()
