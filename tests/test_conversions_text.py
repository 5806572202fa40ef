"""Text files whose columns are given types: a text is the value it is written as, or bad."""

import csv
import io
import json
import random
import re

import pyarrow as pa
from oracle import drive, types
from oracle.convert import Outcome, convert, family
from oracle.edges import nested, texts
from oracle.numbers import FLOATS
from oracle.text import SPECIAL
from oracle.trial import ROUNDS, SEED, Trial, fail_on, reasons

TEXT = pa.string()
READ = ("number", "bool", "date", "time", "timestamp", "text", "binary")
NAMED = [t for t in types.SCALARS if types.word(t) and family(t) in READ and drive.parquet_has(t)]
PRINTED = ["NaN", "Infinity", "-Infinity"]
JSON_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)


def of_csv(target):
    """An empty field is null."""
    return lambda text: Outcome("value") if text == "" else convert(text, TEXT, target)


def write_csv(trial, path):
    """Writes the file, and gives the row that begins in a line."""
    lines, at, rows = {}, 2, []
    table = trial.table()
    for number, row in enumerate(table.to_pylist(), 1):
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerow(
            ["" if v is None else v for v in row.values()]
        )
        rows.append(out.getvalue())
        lines[at] = number
        at += out.getvalue().count("\n")
    path.write_text(",".join(table.column_names) + "\n" + "".join(rows), newline="")
    return lines


def judge_rejects(rejected, path, lines):
    return {lines[line]: reason for line, reason in reasons(rejected).get(path.name, {}).items()}


def run(store, tmp_path, trial, path, lines):
    _, rejected = drive.push(store, "t", tmp_path, path, args=trial.words())
    held = drive.stored(store, "t", tmp_path)
    fail_on(trial.problems(held, judge_rejects(rejected, path, lines)))


def test_csv(store, tmp_path):
    rng = random.Random(SEED)
    trial = Trial(rng)
    for _ in range(ROUNDS):
        for target in NAMED:
            trial.add(TEXT, target, texts(target), judge=of_csv(target))
    path = tmp_path / "rows.csv"
    run(store, tmp_path, trial, path, write_csv(trial, path))


class Token(str):
    """What stands in a JSON file as it is."""


def of_json(target):
    """A string is taken for a number only if it is written as JSON writes it."""

    def judge(text):
        number = family(target) == "number" and text not in PRINTED
        if number and not JSON_NUMBER.fullmatch(text):
            return Outcome("bad")
        return convert(text, TEXT, target)

    return judge


def line_of(row):
    parts = (
        f"{json.dumps(name)}: {value if isinstance(value, Token) else json.dumps(value)}"
        for name, value in row.items()
    )
    return "{" + ", ".join(parts) + "}\n"


def write_json(trial, path, token):
    """Writes the rows; `token` says of a column's text how it stands there."""
    rows = trial.table().to_pylist()
    columns = {column.name: column for column in trial.columns}

    def shown(name, value):
        return token(columns[name], value) if name in columns and value is not None else value

    lines = (line_of({name: shown(name, value) for name, value in row.items()}) for row in rows)
    path.write_text("".join(lines))
    return {number: number for number in range(1, len(rows) + 1)}


def unsure(text, target):
    """What docs/conversions.md leaves open: strings for bools, and forms of NaN and infinities
    other than those that `get` prints."""
    return family(target) == "bool" or (family(target) == "number" and text.lower() in SPECIAL)


def test_strings_of_json_lines(store, tmp_path):
    trial = Trial(random.Random(SEED))
    for _ in range(ROUNDS):
        for target in NAMED:
            values = [text for text in texts(target) if not unsure(text, target)]
            values += PRINTED if target in FLOATS else []
            trial.add(TEXT, target, values, judge=of_json(target))
    path = tmp_path / "rows.jsonl"
    run(store, tmp_path, trial, path, write_json(trial, path, lambda _, text: text))


def test_numbers_of_json_lines(store, tmp_path):
    trial = Trial(random.Random(SEED))
    for _ in range(ROUNDS):
        for target in NAMED:
            if family(target) == "number":
                values = [text for text in texts(target) if JSON_NUMBER.fullmatch(text)]
                trial.add(TEXT, target, [*values, "true", "false"], judge=of_json(target))
    path = tmp_path / "rows.jsonl"
    run(store, tmp_path, trial, path, write_json(trial, path, lambda _, text: Token(text)))


# What JSON says as it is: numbers of any kind, bools, texts, lists, structs and maps of them.
SAID = [*types.INTEGERS, pa.float64(), pa.bool_(), pa.string()]


def finite(value):
    """JSON has no NaN."""
    text = repr(value)
    return not any(word in text for word in ("nan", "inf"))


def test_nested_values_of_json_lines(store, tmp_path):
    rng = random.Random(SEED)
    trial = Trial(rng)
    while len(trial.columns) < 40 * ROUNDS:
        t = rng.choice(SAID)
        _, target = types.pair(t, t, rng, rng.randrange(1, 5), strict=0)
        if types.word(target) and types.plain(target) == target and drive.parquet_has(target):
            trial.add(target, target, filter(finite, nested(target, target, rng)))
    targets = {column.name: column.target for column in trial.columns}
    path, lines = tmp_path / "rows.jsonl", []
    for number, row in zip(trial.ids(), trial.rows(), strict=True):
        values = {name: as_json(value, targets[name]) for name, (value, _) in row.items()}
        lines.append(json.dumps({"id": number, **values}) + "\n")
    path.write_text("".join(lines))
    run(store, tmp_path, trial, path, {number: number for number in range(1, len(lines) + 1)})


def as_json(value, t):
    """A value as JSON has it: maps are objects."""
    if value is None:
        return None
    kind = family(t)
    if kind == "map":
        return {key: as_json(item, t.item_type) for key, item in value}
    if kind == "list":
        return [as_json(item, t.value_type) for item in value]
    if kind == "struct":
        return {field.name: as_json(value[field.name], field.type) for field in t}
    return value
