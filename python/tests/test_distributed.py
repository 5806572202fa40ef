"""Pushes by tasks: the interface for engines, driven without an engine."""

import json
import os
import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import forebay
from forebay._forebay import DistributedPush, PartWriter, TaskEncoder

KEY = "--key=bird/{id:04}"
BOUNDARIES = ["bird/0100", "bird/0640"]


class Engine:
    """Does the work of Spark in this process: splits rows, shuffles, writes partitions."""

    def __init__(self, path, rows, words, parts=3):
        self.scratch = Path(path).parent / "scratch"
        self.rows, self.parts = rows, parts
        line = ["push", KEY, f"--store={path}", *words, "--", "birds"]
        self.push = DistributedPush(line, rows.schema, "an engine")

    def slices(self):
        each = -(-self.rows.num_rows // self.parts)
        return [self.rows.slice(part * each, each) for part in range(self.parts)]

    def sample(self, step):
        samples = []
        for number, rows in enumerate(self.slices()):
            encoder = TaskEncoder(self.push.recipe(), number)
            taken = rows.take(list(range(0, rows.num_rows, step)))
            samples += [encoder.sample(batch, [step] * len(batch)) for batch in taken.to_batches()]
        return self.push.set_boundaries(pa.Table.from_batches(samples), self.rows.num_rows)

    def encode(self):
        records = []
        for number, rows in enumerate(self.slices()):
            encoder = TaskEncoder(self.push.recipe(), number)
            for batch in rows.to_batches(max_chunksize=100):
                records += encoder.encode(batch)
            records += encoder.finish()
        return pa.Table.from_batches(records)

    def write(self, records):
        writer = PartWriter(self.push.recipe(), str(self.scratch))
        for batch in records.to_batches():
            writer.add(batch)
        return writer.finish()

    def shuffled(self, records):
        """Returns the records of each partition."""
        records = records.sort_by([("source", "ascending"), ("sequence", "ascending")])
        every = range(self.push.partitions)
        return [records.filter(pc.equal(records["partition"], part)) for part in every]

    def reports(self):
        return [report for part in self.shuffled(self.encode()) for report in self.write(part)]

    def run(self):
        held, text, _ = self.push.commit(self.reports())
        assert not held
        return json.loads(text)


def unpacked(sent):
    """Returns the records in chunks. Each has the lengths of key and rest, the key, the rest."""
    found = []
    for row in sent.to_pylist():
        chunk = row["records"] if row["sequence"] >= 0 else b""
        while chunk:
            key, rest = struct.unpack_from("<HI", chunk)
            found.append(chunk[6 : 6 + key + rest])
            chunk = chunk[6 + key + rest :]
    return found


def files(path):
    """Returns the run files of the newest version in the order of partitions."""
    table = Path(path) / "tables" / "birds"
    versions = sorted(table.glob("versions/*.manifest"))
    manifest = json.loads(versions[-1].read_text().rsplit("xxh3", 1)[0])
    runs = [part["runs"][0]["id"] for part in manifest["partitions"] if part["runs"]]
    return [(table / "runs" / f"{run}.run").read_bytes() for run in runs]


@pytest.mark.parametrize(
    "options",
    [
        {"partitions": 3},
        {"order": "ordered", "boundaries": BOUNDARIES, "compression": "zstd"},
        {"value": "name", "boundaries": [5000], "page_size": 8192},
    ],
    ids=["hashed", "ordered", "values"],
)
def test_tasks_and_a_local_push_make_the_same_version(birds, path, tmp_path, options):
    words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    words = [word.replace("'", '"') for word in words]
    answer = Engine(path, birds, words).run()
    assert (answer["version"], answer["rows"], answer["swapped"]) == (1, 1000, True)
    other = str(tmp_path / "other")
    result = forebay.push(birds, "birds", key="bird/{id:04}", store=other, **options)
    assert (result.rows, result.bytes) == (answer["rows"], answer["bytes"])
    assert files(path) == files(other) and len(files(path)) in (2, 3)
    with forebay.open(path) as ours, forebay.open(other) as theirs:
        keys = [f"bird/{number:04}" for number in range(1000)]
        assert ours["birds"].get_many(keys) == theirs["birds"].get_many(keys)


def test_partitions_are_split_by_samples(birds, path):
    engine = Engine(path, birds, ["--order=ordered", "--partitions=4"])
    assert engine.push.needs_samples
    with pytest.raises(forebay.UsageError, match="sample"):
        _ = engine.push.partitions
    assert engine.sample(step=7) == 4
    assert not engine.push.needs_samples
    assert engine.run()["rows"] == 1000
    sizes = [len(run) for run in files(path)]
    assert len(sizes) == 4 and min(sizes) / max(sizes) > 0.8


def test_a_retried_task_does_no_harm(birds, path):
    engine = Engine(path, birds, ["--partitions=2"])
    first, second = engine.shuffled(engine.encode())
    engine.write(first)
    reports = engine.write(first) + engine.write(second)
    engine.write(second)
    runs = Path(path) / "tables" / "birds" / "runs"
    assert len(os.listdir(runs)) == 4
    engine.push.commit(reports)
    assert len(os.listdir(runs)) == 2
    assert os.listdir(engine.scratch) == []
    with forebay.open(path) as store:
        assert store["birds"]["bird/0007"]["name"] == "bird 7"


def test_lost_and_doubled_parts_publish_nothing(birds, path):
    forebay.push(birds.slice(0, 900), "birds", key="bird/{id:04}", store=path)
    engine = Engine(path, birds, ["--partitions=3"])
    first, second, third = engine.shuffled(engine.encode())
    with pytest.raises(forebay.DataError, match=r"partition 1: \d+ records.*were sent.*came"):
        engine.write(second.slice(0, second.num_rows - 1))
    with pytest.raises(forebay.BusyError, match="a push"):
        forebay.push(birds, "birds", key="bird/{id:04}", store=path)
    reports = engine.write(first) + engine.write(second) + engine.write(third)
    with pytest.raises(forebay.DataError, match="partition 2 has 0 reports instead of one"):
        engine.push.commit(reports[:2])
    engine = Engine(path, birds, ["--partitions=3"])
    reports = engine.reports()
    with pytest.raises(forebay.DataError, match="partition 0 has 2 reports"):
        engine.push.commit([*reports, reports[0]])
    with forebay.open(path) as store:
        assert store["birds"].version == 1
        assert len(list((Path(path) / "tables" / "birds" / "runs").glob("*.run"))) == 1


def test_an_abandoned_push_leaves_nothing(birds, path):
    engine = Engine(path, birds, ["--partitions=2"])
    engine.reports()
    engine.push.abandon()
    engine.push.abandon()
    assert os.listdir(Path(path) / "tables" / "birds" / "runs") == []
    with pytest.raises(forebay.UsageError, match="ended"):
        engine.push.recipe()
    assert forebay.push(birds, "birds", key="bird/{id:04}", store=path).version == 1


def test_errors_come_before_anything_runs(birds, path):
    def refused(*words):
        with pytest.raises(forebay.Error) as caught:
            DistributedPush(
                ["push", f"--store={path}", *words, "--", "birds"], birds.schema, "rows"
            )
        assert not (Path(path) / "tables" / "birds" / "versions").exists()
        return str(caught.value)

    assert "'no', which the source does not have" in refused("--key={no}")
    assert 'bad_rows="FILE"' in refused(KEY, "--bad-rows=rejects.jsonl")
    assert "onto" in refused("--onto=current")
    assert "threads is not for" in refused(KEY, "--threads=4")
    assert "boundaries: the boundaries do not rise" in refused(KEY, "--boundaries=[7, 7]")
    assert "boundaries" in refused(KEY, "--boundaries=[7]", "--partitions=3")
    assert "sideways" in refused(KEY, "--order=sideways")


def test_batches_are_converted_by_name_exactly(path):
    ids, place = pa.array([1, 2]), pa.struct({"x": pa.int64(), "y": pa.float32()})
    rows = pa.table({"id": ids, "at": pa.array([{"x": 3}, {"y": 0.5}], place)})

    def encode(places, types, bad_rows="fail"):
        line = ["push", KEY, f"--store={path}", "--partitions=1", f"--bad-rows={bad_rows}"]
        push = DistributedPush([*line, "--", "birds"], rows.schema, "an engine")
        try:
            encoder = TaskEncoder(push.recipe(), 0)
            other = {"at": pa.array(places, pa.struct(types)), "id": ids.cast("uint8")}
            sent = encoder.encode(pa.record_batch(other)) + encoder.finish()
            return unpacked(pa.Table.from_batches(sent))
        finally:
            push.abandon()

    wanted = encode(rows["at"].to_pylist(), list(place))
    turned = {"y": pa.float64(), "x": pa.float64()}
    assert encode([{"x": 3.0}, {"y": 0.5}], turned) == wanted
    assert encode([{"x": 3}, {}], {"x": pa.int8()})[0] == wanted[0]
    with pytest.raises(forebay.DataError, match="'at'.*more"):
        encode([{"x": 3, "more": 1}, {}], {"x": pa.int8(), "more": pa.int8()})
    fractional = [{"x": 3.0}, {"x": 0.5}], {"x": pa.float64()}
    with pytest.raises(forebay.DataError, match="part 0: row 2: .*'at.*0.5"):
        encode(*fractional)
    assert encode(*fractional, bad_rows="skip") == wanted[:1]


def test_random_bytes_are_refused_with_a_reason(birds, path):
    engine = Engine(path, birds, ["--partitions=2"])
    recipe = engine.push.recipe()
    for junk in [b"", b"{}", recipe[:-3], recipe.replace(b'"key"', b'"kez"')]:
        with pytest.raises(forebay.UsageError, match="the recipe"):
            TaskEncoder(junk, 0)
    with pytest.raises(forebay.UsageError, match="parts have numbers"):
        TaskEncoder(recipe, -1)
    encoder = TaskEncoder(recipe, 0)
    with pytest.raises(forebay.DataError, match="no column 'name'"):
        encoder.encode(birds.drop_columns("name").to_batches()[0])
    writer = PartWriter(recipe, str(engine.scratch))
    with pytest.raises(forebay.UsageError, match="no column 'partition'"):
        writer.add(birds.to_batches()[0])
    records = engine.encode()
    far = records.set_column(0, "partition", pa.array([9] * records.num_rows, pa.int32()))
    with pytest.raises(forebay.UsageError, match="partition 9 of 2"):
        writer.add(far.to_batches()[0])
    with pytest.raises(forebay.DataError, match="report 1 of 1"):
        engine.push.commit(["junk"])
