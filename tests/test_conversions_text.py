"""Text files with given column types: a text gives the value that it spells, or a bad row."""

import json
import random
import re

import pyarrow as pa
from oracle import drive, types
from oracle.convert import Outcome, convert, family
from oracle.edges import nested, texts
from oracle.trial import ROUNDS, SEED, Trial, fail_on, reasons

TEXT = pa.string()
READ = ("number", "bool", "date", "time", "timestamp", "duration", "text", "binary")
NAMED = [t for t in types.SCALARS if types.word(t) and family(t) in READ]
JSON_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)


def of_csv(target):
    """A quoted empty field is an empty text, or null for other types."""

    def judge(text):
        nothing = text == "" and family(target) not in ("text", "binary")
        return Outcome("value") if nothing else convert(text, TEXT, target)

    return judge


def csv_field(value):
    if value is None:
        return ""
    text = str(value)
    return (
        f'"{text.replace(chr(34), chr(34) * 2)}"' if text == "" or set(text) & set('",\n') else text
    )


def write_csv(trial, path):
    """Writes the file, and returns the row that begins on each line."""
    lines, at, records = {}, 2, []
    table = trial.table()
    for number, row in enumerate(table.to_pylist(), 1):
        record = ",".join(map(csv_field, row.values())) + "\n"
        records.append(record)
        lines[at] = number
        at += record.count("\n")
    path.write_text(",".join(table.column_names) + "\n" + "".join(records), newline="")
    return lines


def judge_rejects(rejected, path, lines):
    return {lines[line]: reason for line, reason in reasons(rejected).get(path.name, {}).items()}


def run(store, tmp_path, trial, path, lines):
    _, rejected = drive.push(store, "t", tmp_path, path, args=trial.words())
    held = drive.stored(store, "t", tmp_path)
    rejects = judge_rejects(rejected, path, lines)
    # A number or string in JSON has no other type.
    fail_on(trial.problems(held, rejects, sources=path.suffix == ".csv"))


def test_csv(store, tmp_path):
    rng = random.Random(SEED)
    trial = Trial(rng)
    for _ in range(ROUNDS):
        for target in NAMED:
            trial.add(TEXT, target, texts(target), judge=of_csv(target))
    path = tmp_path / "rows.csv"
    run(store, tmp_path, trial, path, write_csv(trial, path))


class Token(str):
    """A text that stands unquoted in a JSON file."""


def line_of(row):
    parts = (
        f"{json.dumps(name)}: {value if isinstance(value, Token) else json.dumps(value)}"
        for name, value in row.items()
    )
    return "{" + ", ".join(parts) + "}\n"


def write_json(trial, path, token):
    """Writes the rows. `token` gives the form of a column's text."""
    rows = trial.table().to_pylist()
    columns = {column.name: column for column in trial.columns}

    def shown(name, value):
        return token(columns[name], value) if name in columns and value is not None else value

    lines = (line_of({name: shown(name, value) for name, value in row.items()}) for row in rows)
    path.write_text("".join(lines))
    return {number: number for number in range(1, len(rows) + 1)}


def test_strings_of_json_lines(store, tmp_path):
    """A column with a given type accepts texts that spell its values."""
    trial = Trial(random.Random(SEED))
    for _ in range(ROUNDS):
        for target in NAMED:
            trial.add(TEXT, target, texts(target))
    path = tmp_path / "rows.jsonl"
    run(store, tmp_path, trial, path, write_json(trial, path, lambda _, text: text))


def test_numbers_of_json_lines(store, tmp_path):
    trial = Trial(random.Random(SEED))
    for _ in range(ROUNDS):
        for target in NAMED:
            if family(target) == "number":
                values = [text for text in texts(target) if JSON_NUMBER.fullmatch(text)]
                trial.add(TEXT, target, values)
    path = tmp_path / "rows.jsonl"
    run(store, tmp_path, trial, path, write_json(trial, path, lambda _, text: Token(text)))


# Types that JSON represents: numbers of any kind, bools, texts, and lists, structs and maps of
# them.
JSON_TYPES = [*types.INTEGERS, pa.float64(), pa.bool_(), pa.string()]


def finite(value):
    """Whether a value has no NaN or infinity, because JSON has none."""
    text = repr(value)
    return not any(word in text for word in ("nan", "inf"))


def test_booleans_in_texts_are_no_numbers(store, tmp_path):
    """In a push, in a push onto a version, and in a load, from CSV and JSON."""
    (tmp_path / "a.jsonl").write_text('{"id":1,"n":1}\n{"id":2,"n":true}\n{"id":3,"n":false}\n')
    (tmp_path / "a.csv").write_text("id,n\n1,1\n2,true\n3,false\n")
    (tmp_path / "good.jsonl").write_text('{"id":0,"n":0}\n')
    for target in ("int64", "float64"):
        typed = ["--column", f"n:{target}"]
        store.push("onto", tmp_path / "good.jsonl", args=[*typed, "--force"])
        delta = target.replace("int", "i").replace("float", "f")
        store.run("create", delta, "--delta", delta, "--durability", "os")
        for name in ("a.jsonl", "a.csv"):
            for words in (
                ["push", "t", tmp_path / name, "--key", "{id}", "--force", *typed],
                ["push", "onto", tmp_path / name, "--onto", "current"],
                ["load", delta, tmp_path / name, "--key", "{id}"],
            ):
                assert store.json(*words, "--bad-rows", "skip")["rejected"] == 2
                assert f"does not read as {target}" in store.refuse(*words)


def test_nested_values_of_json_lines(store, tmp_path):
    rng = random.Random(SEED)
    trial = Trial(rng)
    while len(trial.columns) < 40 * ROUNDS:
        t = rng.choice(JSON_TYPES)
        _, target = types.pair(t, t, rng, rng.randrange(1, 5), strict=(0, 0))
        if types.word(target) and types.plain(target) == target:
            trial.add(target, target, filter(finite, nested(target, target, rng)))
    targets = {column.name: column.target for column in trial.columns}
    path, lines = tmp_path / "rows.jsonl", []
    for number, row in zip(trial.ids(), trial.rows(), strict=True):
        values = {name: as_json(value, targets[name]) for name, (value, _) in row.items()}
        lines.append(json.dumps({"id": number, **values}) + "\n")
    path.write_text("".join(lines))
    run(store, tmp_path, trial, path, {number: number for number in range(1, len(lines) + 1)})


def as_json(value, t):
    """A value in JSON form: maps are objects."""
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
