"""docs/how-to/orchestrate.md on exit codes, JSON, retries, kills and backfills."""

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import PATH, Holder, ask, run, serving, write_people

import forebay

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"

# The page and the heading that describe a command's fields.
PUSH = ("commands-push.md", "## JSON")
DRY_RUN = ("commands-dry-run.md", "## JSON")
SWAP = ("commands-tables.md", "## swap")
VERSIONS = ("commands-tables.md", "## versions")


def push(store, source, *words, code=0, table="people", key="{id}"):
    done = run(
        "forebay",
        "push",
        table,
        source,
        "--key",
        key,
        "--create",
        "--json",
        "--quiet",
        *words,
        store=store,
    )
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if done.stdout else done.stderr


def described(section):
    """The text of a page from a heading to the next one of its level."""
    page, heading = section
    text = (REFERENCE / page).read_text()
    level = heading.split()[0]
    begin = text.index(f"\n{heading}\n")
    end = re.search(rf"\n#{{1,{len(level)}}} ", text[begin + 1 :])
    return text[begin : begin + 1 + end.start()] if end else text[begin:]


def check_fields(answer, *sections):
    """Checks that the document names each field of an answer, at any depth."""
    words = "".join(map(described, sections))
    for item in answer if isinstance(answer, list) else [answer]:
        for name, value in item.items():
            assert re.search(rf"\b{name}\b", words), f"{name} is not described in {sections}"
            inner = value if isinstance(value, list) else [value]
            # The value of an example is a row of the table, and quantiles have percents as names.
            if name not in ("value", "quantiles") and all(isinstance(part, dict) for part in inner):
                check_fields(inner, *sections)


def test_all_fields_of_json_answers_are_documented(store, tmp_path):
    source = tmp_path / "people.parquet"
    check_fields(push(tmp_path / "new", source), PUSH)
    allowed = ["--gate", "type-changed=report"]
    pushed = push(store, source, "--column", "score:float32:round", *allowed)
    assert pushed["lossy"] and pushed["gate"]
    check_fields(pushed, PUSH)
    onto = push(store, source, "--onto", "1")
    check_fields(onto, PUSH)
    check_fields(ask(store, "swap", "people", "2"), SWAP)
    check_fields(ask(store, "rollback", "people"), SWAP)
    check_fields(ask(store, "versions", "people"), VERSIONS)
    write_people(source, 10)
    check_fields(push(store, source, "--dry-run", code=3), PUSH, DRY_RUN)


def test_errors_end_with_a_line_of_json(store, tmp_path):
    source = tmp_path / "people.parquet"
    words = ["forebay", "push", "people", source, "--json", "--key"]
    for key, more, code in [("{none}", [], 1), ("{id}", ["--gate", "rows"], 2)]:
        done = run(*words, key, *more, store=store)
        assert (done.returncode, done.stdout) == (code, "")
        if code == 1:
            last = json.loads(done.stderr.splitlines()[-1])
            assert last["event"] == "error" and "none" in last["text"]
    with Holder(store):
        done = run(*words, "{id}", store=store)
        assert (done.returncode, done.stdout) == (4, "")
        assert json.loads(done.stderr.splitlines()[-1])["event"] == "error"


def test_repeated_commands(store, tmp_path):
    source = tmp_path / "people.parquet"
    # A second push of a whole table gives an equal version.
    push(store, source)
    first, second = ask(store, "versions", "people")
    assert first["checksum"] == second["checksum"] and second["serving"]
    # A push with a version's own number is refused, and so is an older number.
    push(store, source, "--version", 20261127)
    for number in (20261127, 20261126):
        assert "versions rise" in push(store, source, "--version", number, code=1)
    # A second swap changes nothing, and a second rollback goes one version further.
    for _ in range(2):
        ask(store, "swap", "people", "20261127")
    for before in (2, 1):
        ask(store, "rollback", "people", "--from", str(serving(store)[0]))
        assert serving(store) == [before]


def count_of(store):
    return ask(store, "get", "counts", "1")[0]


def test_deltas_count_twice_onto_current_and_once_onto_a_version(tmp_path):
    store, source = tmp_path / "store", tmp_path / "counts.parquet"
    pq.write_table(pa.table({"id": [1], "n": [10]}), source)
    push(store, source, "--delta", "i64", "--value", "n", table="counts")
    pq.write_table(pa.table({"id": [1], "n": [5], "op": ["delta"]}), source)
    onto = ["forebay", "push", "counts", source, "--op", "op", "--quiet", "--onto"]
    for _ in range(2):
        assert run(*onto, "1", store=store).returncode == 0
    assert count_of(store) == 15
    for _ in range(2):
        assert run(*onto, "current", store=store).returncode == 0
    assert count_of(store) == 25


def test_a_day_can_be_pushed_later(tmp_path):
    store, source = tmp_path / "store", tmp_path / "days.parquet"

    def day(number, price, onto=None):
        pq.write_table(pa.table({"day": [number], "id": [7], "price": [price]}), source)
        words = ["--onto", str(onto)] if onto else ["--key", "{day}/{id}", "--create"]
        assert run("forebay", "push", "days", source, *words, store=store).returncode == 0
        words = ["--onto", str(onto)] if onto else ["--key", "{id}"]
        assert run("forebay", "push", "last", source, *words, store=store).returncode == 0

    day(1, 1.0)
    day(2, 2.0, "current")
    day(1, 1.5, "current")
    prices = [row["price"] for row in ask(store, "get", "days", "1/7", "2/7")]
    assert prices == [1.5, 2.0]
    # A key of both days has the value of the last push, not of the newest day.
    assert ask(store, "get", "last", "7")[0]["price"] == 1.5
    day(2, 2.0, 3)
    assert ask(store, "get", "last", "7")[0]["price"] == 2.0


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_push_leaves_no_version_and_no_lock(store, tmp_path, sign):
    big = tmp_path / "big.parquet"
    pq.write_table(pa.table({"id": range(1_000_000), "x": [0.5] * 1_000_000}), big)
    words = ["forebay", "push", "people", str(big), "--key", "{id}", "--rate", "1M", "--force"]
    environment = {"PATH": PATH, "FOREBAY_STORE": str(store)}

    def begin():
        return subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL)

    running, end = begin(), time.monotonic() + 60
    while run("forebay", "push", "people", big, "--key", "{id}", store=store).returncode != 4:
        if running.poll() == 4:
            # The test's own push was first.
            running = begin()
        assert running.poll() is None and time.monotonic() < end
    running.send_signal(sign)
    assert running.wait(90) == -sign
    versions = ask(store, "versions", "people")
    assert push(store, tmp_path / "people.parquet", "--force")["swapped"]
    remaining = {
        file.name.split("-")[0] for file in (store / "tables" / "people" / "runs").iterdir()
    }
    kept = {str(version["version"]) for version in ask(store, "versions", "people")}
    assert remaining <= kept and len(kept) <= len(versions) + 1


def test_an_exception_of_a_signal_handler_ends_a_push(tmp_path):
    class Late(Exception):
        pass

    def raise_late(*_):
        raise Late

    big = tmp_path / "big.parquet"
    pq.write_table(pa.table({"id": range(1_000_000), "x": [0.5] * 1_000_000}), big)
    before = signal.signal(signal.SIGALRM, raise_late)
    signal.setitimer(signal.ITIMER_REAL, 1)
    try:
        with pytest.raises(Late):
            store = str(tmp_path / "store")
            forebay.push(str(big), "t", key="{id}", store=store, rate="1M", progress=False)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert list(forebay.open(store)) == []
