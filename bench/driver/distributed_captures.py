"""One large capture into a table, by one thread and by two, beside tcpdump on the same file."""

import shutil
import subprocess
import time

import forebay_cli
import packets
from common import DATA, Done, Failed, Report, median_of, need_disk, say, shown
from forebay_cli import BINARY

KEY = "{time:be}{packet:be}"
#: 362 KB of records, about.
REPETITIONS = {False: 590, True: 30}
SAMPLES = 500

LABELS = {
    "read": "reading the file (`cat`)",
    "walk": "`tcpdump -r FILE -w /dev/null`: record by record, nothing parsed",
    "parse": "`tcpdump -r FILE -nn -tt -q`: a line a packet with its addresses and ports",
    "push-1": "forebay push, 1 thread",
    "push-2": "forebay push, 2 threads",
}


def measure(report: Report, options, done: Done, run: bool) -> None:
    repetitions = REPETITIONS[options.trial]
    results = {}
    for number in range(options.rounds):
        for what in LABELS:
            place = Done.key("captures", repetitions, number, what)
            if run and place not in done.results:
                say(f"captures, round {number + 1} of {options.rounds}: {what}")
                try:
                    done.put(place, one(what, repetitions))
                except Failed as why:
                    report.failed(f"captures, {LABELS[what]}", why)
            if place in done.results:
                results.setdefault(what, []).append(done.results[place])
    if results:
        write(report, repetitions, results)


def one(what: str, repetitions: int) -> dict:
    need_disk(1 + 2 * repetitions * 3.4e6 / 2**30)
    repeated = packets.Repeated()
    file = packets.capture(repeated, repetitions)
    if what == "read":
        return timed(["cat", file])
    if what == "walk":
        return timed(["tcpdump", "-r", file, "-w", "/dev/null"])
    if what == "parse":
        return timed(["tcpdump", "-r", file, "-nn", "-tt", "-q"])
    store = DATA / "capture-store"
    shutil.rmtree(store, ignore_errors=True)
    try:
        push = [BINARY, "--store", store, "push", "--create", "packets", file, "--key", KEY, "--order", "ordered", "--quiet"]
        result = timed([*push, "--threads", what.removeprefix("push-")])
        result["stored_bytes"] = sum(run.stat().st_size for run in (store / "tables/packets/runs").iterdir())
        check(store, repeated, repetitions)
        return result
    finally:
        shutil.rmtree(store, ignore_errors=True)


def timed(command: list) -> dict:
    """Wall and processor time of a command whose output goes nowhere."""
    errors = DATA / "captures.err"
    with errors.open("w+") as said:
        start = time.monotonic()
        child = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=said)
        _, usage = forebay_cli.watch(child, start + 600)
        seconds = time.monotonic() - start
        said.seek(0)
        if child.returncode != 0:
            raise Failed(said.read().strip()[-300:])
    return {"seconds": seconds, "cpu_seconds": usage.ru_utime + usage.ru_stime}


def check(store, repeated: packets.Repeated, repetitions: int) -> None:
    """All packets are there, and some of them are what the capture has."""
    import forebay

    count = repetitions * len(repeated)
    with forebay.open(store) as opened:
        table = opened["packets"]
        if table.rows_between != (count, count):
            raise Failed(f"{table.rows_between} packets are in the table, not {count}")
        numbers = range(1, count + 1, max(1, count // SAMPLES))
        keys = [packets.capture_key(repeated.time_us(number) * 1000, number) for number in numbers]
        for number, row in zip(numbers, table.get_many(keys)):
            if row is None or (row["captured_bytes"], row["wire_bytes"]) != repeated.lengths(number):
                raise Failed(f"packet {number} is {row}")


def write(report: Report, repetitions: int, results: dict) -> None:
    repeated = packets.Repeated()
    size = repetitions * (len(repeated.bytes) - packets.HEADER_BYTES)
    count = repetitions * len(repeated)
    middle = {what: median_of(runs) for what, runs in results.items()}
    report.body["captures"] = {"packets": count, "bytes": size, "median": middle, "runs": results}
    report.text(
        f"## One capture of {size / 1e9:.2f} GB, {count:,} packets",
        "",
        "26,068 real packets repeated with later times, in the page cache. A push parses each packet (addresses, ports, lengths), "
        "sorts by time and number, writes an ordered table, reads it back and syncs it; tcpdump's lines go to /dev/null. Each push is checked: "
        "number of packets, and what some of them say.",
    )
    report.table(
        ["what", "s", "MB/s of the capture", "million packets/s", "processor s"],
        [
            [LABELS[what], shown(r["seconds"], 2), shown(size / r["seconds"] / 1e6), shown(count / r["seconds"] / 1e6, 2),
             shown(r["cpu_seconds"], 2)]
            for what, r in middle.items()
        ],
    )
    if "push-2" in middle:
        stored = middle["push-2"]["stored_bytes"]
        report.text(f"The table takes {stored / 1e9:.2f} GB, {stored / count:.0f} bytes a packet.")
