"""Many columns, each converted from one type to another, in few rows. The trial compares actual
with expected values.

Good values share rows. Each bad value has its own row, in which all other columns are null. So
every bad row has one cause.
"""

import json
import os
import random
from dataclasses import dataclass, field

import pyarrow as pa

from oracle import types
from oracle.arrays import build, canonical, read
from oracle.convert import convert

SEED = int(os.environ.get("FOREBAY_TEST_SEED", random.randrange(1 << 30)))
# More values make the conversion tests longer and more thorough.
ROUNDS = int(os.environ.get("FOREBAY_TEST_ROUNDS", 1))
# Good values per column, and bad values.
GOOD, BAD = 14, 5
SHOWN = 15


@dataclass
class Column:
    name: str
    source: pa.DataType
    target: pa.DataType
    how: str | None = None
    good: list = field(default_factory=list)
    bad: list = field(default_factory=list)

    def title(self):
        how = f" {self.how}" if self.how else ""
        return f"{self.name}: {self.source} -> {self.target}{how}"


class Trial:
    """A source's columns, their target types, and rows with their values."""

    def __init__(self, rng, first_id=0):
        self.rng, self.first_id, self.columns = rng, first_id, []

    def add(self, source, target, values, how=None, judge=None, name=None):
        """Adds a column with some of the values. `judge` replaces the rule of Arrow's types."""
        column = Column(name or f"c{len(self.columns)}", source, target, how)
        judge = judge or (lambda value: convert(value, source, target, how))
        values = list({repr(canonical(value)): value for value in values}.values())
        for value in self.rng.sample(values, len(values)):
            outcome = judge(value)
            chosen, most = (column.good, GOOD) if outcome.kind == "value" else (column.bad, BAD)
            if outcome.kind != "refused" and len(chosen) < most:
                chosen.append((value, outcome))
        self.columns.append(column)
        return column

    def rows(self):
        """For each row, its values by column name. A bad row has one value."""
        height = max([len(column.good) for column in self.columns], default=0)
        rows = [
            {column.name: column.good[place] for column in self.columns if place < len(column.good)}
            for place in range(height + 1)
        ]
        return rows + [{column.name: bad} for column in self.columns for bad in column.bad]

    def ids(self):
        return range(self.first_id, self.first_id + len(self.rows()))

    def table(self):
        """The source as an Arrow table."""
        rows, columns = self.rows(), {"id": pa.array(self.ids(), pa.int64())}
        for column in self.columns:
            values = [row[column.name][0] if column.name in row else None for row in rows]
            columns[column.name] = build(values, column.source)
        return pa.table(columns)

    def targets(self):
        """The table's columns as an Arrow table without rows."""
        fields = [pa.field(column.name, column.target) for column in self.columns]
        return pa.schema([pa.field("id", pa.int64()), *fields]).empty_table()

    def words(self):
        """The --column options of every column."""
        how = {None: ""}
        return [
            word
            for column in self.columns
            for word in (
                "--column",
                f"{column.name}:{types.word(column.target)}{how.get(column.how, f':{column.how}')}",
            )
        ]

    def lossy(self):
        """How many values of each column changed, if any."""
        counted = {
            column.name: (column.how, sum(outcome.changed for _, outcome in column.good))
            for column in self.columns
        }
        return {name: entry for name, entry in counted.items() if entry[1]}

    def problems(self, stored, rejects, digits=True, sources=True):
        """The errors in the stored rows (Arrow) and the rejected rows (reasons by row, from 1).
        Without `digits`, a decimal may have more than its type. Without `sources`, reasons need not
        name the source's type."""
        found = RowErrors(self, stored, sources)
        for number, row in enumerate(self.rows()):
            reason = rejects.get(number + 1)
            if any(outcome.kind == "bad" for _, outcome in row.values()):
                found.bad_row(number, row, reason)
            elif reason is not None:
                found.add(row, f"rejected, and should arrive: {reason}")
            else:
                found.good_row(number, row)
        found.types(digits)
        return found.list


class RowErrors:
    """Collects the errors in one source's rows."""

    def __init__(self, trial, stored, sources):
        self.trial, self.sources, self.list, self.schema = trial, sources, [], stored.schema
        self.columns = {column.name: column for column in trial.columns}
        place = {key: at for at, key in enumerate(stored["id"].to_pylist())}
        self.at = [place.get(key) for key in trial.ids()]
        self.values = {
            name: read(stored[name]) if name in stored.column_names else None
            for name in self.columns
        }

    def add(self, row, text):
        for name, (value, _) in list(row.items())[:1]:
            text = f"{self.columns[name].title()}: {show(value)}: {text}"
        self.list.append(text)

    def bad_row(self, number, row, reason):
        ((name, (value, _)),) = row.items()
        column = self.columns[name]
        if reason is None:
            at, values = self.at[number], self.values[name]
            got = "nothing" if at is None or values is None else show(values[at])
            self.add(row, f"should be a bad row, and {got} is stored")
            return
        lower = reason.lower()
        for part, words in [
            ("the column", [name]),
            ("the source's type", types.words_for(column.source) if self.sources else [""]),
            ("the table's type", types.words_for(column.target)),
        ]:
            if not any(word in lower for word in words):
                self.add(row, f"the reason does not name {part} ({words[0]}): {reason}")

    def good_row(self, number, row):
        at = self.at[number]
        if at is None:
            self.list.append(f"row {number + 1} is neither stored nor rejected")
            return
        for name, column in self.columns.items():
            if self.values[name] is None:
                continue
            wanted = row[name][1].value if name in row else None
            got = self.values[name][at]
            if canonical(got) != canonical(wanted):
                given = show(row[name][0]) if name in row else "null"
                self.list.append(
                    f"{column.title()}: {given} became {show(got)}, not {show(wanted)}"
                )

    def types(self, digits):
        for name, column in self.columns.items():
            if name not in self.schema.names:
                self.list.append(f"{column.title()}: the column is not there")
            elif types.shape(self.schema.field(name).type, digits) != types.shape(
                column.target, digits
            ):
                self.list.append(f"{column.title()}: stored as {self.schema.field(name).type}")


def show(value):
    text = repr(value)
    return text if len(text) < 120 else f"{text[:100]}... ({len(text)} characters)"


def reasons(path):
    """The reasons in a file of bad rows, by row or line, and file name."""
    found = {}
    if path.exists():
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            file = entry["file"].rsplit("/", 1)[-1]
            found.setdefault(file, {})[entry.get("row", entry.get("line"))] = entry["reason"]
    return found


def fail_on(problems):
    if problems:
        shown = "\n".join(problems[:SHOWN])
        raise AssertionError(f"FOREBAY_TEST_SEED={SEED}: {len(problems)} problems:\n{shown}")
