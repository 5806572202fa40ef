"""Dry runs from Python, of data in memory and of streams, and their output."""

import pyarrow as pa
import pytest

import forebay


@pytest.fixture
def birds():
    return pa.table({"id": range(500), "name": [f"bird {i}" for i in range(500)]})


def test_a_dry_run_writes_nothing_and_reports_what_the_push_does(birds, path):
    tried = forebay.push(birds, "birds", key="{id}", store=path, dry_run=True)
    with pytest.raises(forebay.MissingError):
        forebay.open(f"{path}/tables")
    assert (tried.outlook, tried.version, tried.gate) == ("swap", 1, ())
    assert tried.columns == {"id": "int64", "name": "text"} and tried.all_read and tried.exact
    assert tried.examples[1] == ("1", {"id": 1, "name": "bird 1"})
    done = forebay.push(birds, "birds", key="{id}", store=path)
    assert (tried.rows, tried.bytes, tried.rejected) == (done.rows, done.bytes, done.rejected)
    fewer = birds.slice(0, 100).drop_columns(["name"])
    tried = forebay.push(fewer, "birds", key="{id}", store=path, dry_run="all")
    assert tried.outlook == "hold" and tried.compared_with == 1
    with pytest.raises(forebay.GateHeld, match="column name is gone") as held:
        forebay.push(fewer, "birds", key="{id}", store=path)
    assert held.value.result.gate == tried.gate
    with forebay.open(path) as store:
        assert store["birds"].diff(1, 2).schema_changes == ["column name is gone (text)"]
        assert store["birds"].version == 1


def test_a_dry_run_takes_only_the_batches_that_it_reads(path):
    taken = []

    def batches():
        for start in range(0, 1_000_000, 10_000):
            taken.append(start)
            yield pa.record_batch({"id": range(start, start + 10_000)})

    schema = pa.schema([("id", pa.int64())])
    reader = pa.RecordBatchReader.from_batches(schema, batches())
    tried = forebay.push(reader, "t", key="{id}", store=path, dry_run=True)
    assert not tried.all_read and tried.rows is None and not tried.exact
    assert 10 <= len(taken) < 30
    reader = pa.RecordBatchReader.from_batches(schema, batches())
    tried = forebay.push(reader, "t", key="{id}", store=path, dry_run="all")
    assert tried.rows == 1_000_000 and tried.exact


def test_a_push_that_would_fail_is_reported_and_not_raised(path):
    data = pa.table({"id": [1, None, 1]})
    tried = forebay.push(data, "t", key="{id}", store=path, dry_run=True)
    assert tried.outlook == "fail" and "'id' is null" in tried.problem
    assert tried.rejected == tried.duplicates == 1
    assert tried.bad_rows[0].place == "row 2"
    with pytest.raises(forebay.DataError):
        forebay.push(data, "t", key="{id}", store=path)
    # Errors that need no row are still raised.
    with pytest.raises(forebay.DataError, match="nothing"):
        forebay.push(data, "t", key="{nothing}", store=path, dry_run=True)


def test_requested_losses_are_reported(path):
    data = pa.table({"id": [1, 2, 3], "price": [1.5, 2.0, 2.25]})
    options = {"key": "{id}", "store": path, "column": {"price": "int64:round"}}
    tried = forebay.push(data, "t", dry_run=True, **options)
    done = forebay.push(data, "t", **options)
    assert tried.lossy == done.lossy == (forebay.Lossy("price", "round", 2),)
    assert "changed: price: 2 values rounded" in str(tried)
    assert "price: 2 values rounded" in str(done)


def test_a_dry_run_has_text_and_html(birds, path):
    tried = forebay.push(birds, "birds", key="{id}", store=path, dry_run=True)
    assert repr(tried) == "<forebay dry run: birds version 1 would serve>"
    text = str(tried)
    for line in ["  column name: text", "  rows: 500", "  read: all 500 rows", "  partitions: 1"]:
        assert line in text.splitlines()
    assert "<td" in tried._repr_html_() and "column name" in tried._repr_html_()


def test_problems_name_the_options_of_python(path):
    tried = forebay.push(pa.table({"id": [1, None]}), "t", key="{id}", store=path, dry_run="all")
    assert 'leave such rows out by bad_rows="skip"' in tried.problem
    assert "--" not in str(tried)


def test_statistics_equal_those_of_the_push_and_of_the_difference(path):
    def prices(scale):
        return pa.table({"id": range(200), "price": [scale * (10 + i / 10) for i in range(200)]})

    tried = forebay.push(prices(1), "t", key="{id}", store=path, dry_run=True)
    done = forebay.push(prices(1), "t", key="{id}", store=path)
    assert tried.statistics == done.statistics
    price = done.statistics[1]
    assert (price.column, price.of, price.mean, price.distinct) == ("price", "number", 19.95, 200)
    assert list(price.quantiles)[:3] == ["p1", "p5", "p10"]
    with pytest.raises(forebay.GateHeld) as held:
        forebay.push(prices(1000), "t", key="{id}", store=path)
    wrong = {finding.limit for finding in held.value.result.gate if not finding.passed}
    assert wrong == {"shift<20%", "std<200%"}
    before, after = forebay.open(path)["t"].diff(1, 2).statistics["price"]
    assert (before.mean, after.mean) == (19.95, 19950)
    with pytest.raises(forebay.UsageError, match="did you mean 'price'"):
        forebay.push(prices(1), "t", key="{id}", store=path, gate="mean(prise)<20%")
