"""`forebay.connect` to live tables of a cluster of three nodes, and writes while a leader dies."""

import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cluster import Cluster
from harness import Store as Files
from harness import wait_for

import forebay

TABLE = ("--mode", "live", "--replicas", "3", "--durability", "os")
PARTED = {
    "hashed": ("--partitions", "3"),
    "ordered": ("--order", "ordered", "--boundary", "k0400", "--boundary", "n3"),
}
PATIENCE_S = 30


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    directory = tmp_path_factory.mktemp("connect_live")
    files = Files(directory / "store")
    made = Cluster(files, directory, 3, 3)
    try:
        made.start()
        for order, parted in PARTED.items():
            files.json("create", f"{order}_bytes", *TABLE, *parted)
            files.json("create", f"{order}_sums", *TABLE, *parted, "--delta", "i64")
        yield made
    finally:
        made.end()
    made.check_logs()


@pytest.fixture
def connection(cluster):
    at = ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes)
    with forebay.connect(f"redis://{at}", timeout=PATIENCE_S) as made:
        yield made


def test_a_table_is_made_from_python(cluster, connection):
    with forebay.open(cluster.store.path) as store:
        assert store.create("made", replicas=1, partitions=2) is None
        assert "made" in store
        assert store.create("unsaid") is None
    connection["made"].put("k", "v")
    assert connection["made"]["k"] == b"v"
    rows = pa.table({"id": ["a", "b"], "v": [b"1", b"2"]})
    loaded = forebay.load(rows, "made", key="{id}", store=cluster.store.path, deadline="1m")
    assert loaded.rows == 2 and connection["made"]["b"] == b"2"


def test_an_index_is_loaded_with_its_table(cluster, connection, tmp_path):
    with forebay.open(cluster.store.path) as store:
        for table in "people", "by_city":
            store.create(table, replicas=1, partitions=2)
    source = tmp_path / "people.parquet"
    rows = pa.table({"id": ["a", "b"], "city": ["oslo", "rome"]})
    pq.write_table(rows, source)
    options = {"key": "{id}", "store": cluster.store.path, "index": {"by_city": "{city}/{id}"}}
    loaded = forebay.load(source, "people", value="city", **options)
    assert loaded.rows == 2 and [(i.table, i.rows) for i in loaded.indexes] == [("by_city", 2)]
    assert "by_city: 2 rows loaded" in str(loaded)
    assert dict(connection["people"]) == {"a": b"oslo", "b": b"rome"}
    assert dict(connection["by_city"]) == {"oslo/a": b"a", "rome/b": b"b"}
    with pytest.raises(forebay.UsageError, match="can be read once"):
        forebay.load(rows, "people", value="city", **options)


@pytest.mark.parametrize("order", ["hashed", "ordered"])
def test_every_operation_of_a_table(connection, order):
    table, sums = connection[f"{order}_bytes"], connection[f"{order}_sums"]
    assert table.live and table.order == order
    keys = [f"k{number:04}" for number in range(1200)]
    assert table.put_many({key: key for key in keys}) == len(keys)
    assert table.get_many([*keys, "none"]) == [*(key.encode() for key in keys), None]
    scanned = pa.table(table.scan()).sort_by("key")
    assert scanned["key"].to_pylist() == keys
    assert scanned["value"].to_pylist() == [key.encode() for key in keys]
    if order == "ordered":
        found = [key for key, _ in table.scan("k0100", "k0900", reverse=True)]
        assert found == keys[899:99:-1]
    seen = table.get_versioned("k0001")
    assert table.put_versioned("k0001", "new", seen.version)
    assert table.put_versioned("k0001", "newer", seen.version) is None
    assert not table.delete_versioned("k0001", seen.version) and table["k0001"] == b"new"
    assert table.delete_versioned("k0001", table.get_versioned("k0001").version)
    table.delete("k0002")
    assert "k0001" not in table and table.get("k0002") is None
    for delta in (3, -1):
        sums.delta("x", delta)
    assert sums["x"] == 2


class Counting:
    """A thread that adds one to some keys in turn, and notes the outcomes."""

    def __init__(self, connection, order):
        self.table, self.name = connection[f"{order}_sums"], order
        self.acknowledged, self.uncertain, self.written = {}, {}, []
        self.is_over, self.failed = False, None
        self.puts = connection[f"{order}_bytes"]
        self.thread = threading.Thread(target=self.run)

    def run(self):
        number = 0
        try:
            while not self.is_over:
                key, number = f"n{number % 60}", number + 1
                self.delta(key)
                try:
                    self.puts.put(f"w{number:06}", str(number))
                    self.written.append(number)
                except forebay.UncertainError:
                    continue
        except Exception as error:
            self.failed = error

    def delta(self, key):
        try:
            self.table.delta(key, 1)
            into = self.acknowledged
        except forebay.UncertainError:
            into = self.uncertain
        into[key] = into.get(key, 0) + 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over = True
        self.thread.join()

    def wait_for_writes(self):
        seen = len(self.written)
        more = seen + 120
        name = f"{self.name} keeps writing"
        wait_for(lambda: self.failed or len(self.written) > more, name, PATIENCE_S)

    def check(self):
        assert self.failed is None
        for key, least in self.acknowledged.items():
            most = least + self.uncertain.get(key, 0)
            assert least <= self.table[key] <= most, key
        values = self.puts.get_many(f"w{number:06}" for number in self.written)
        assert values == [str(number).encode() for number in self.written]


def leader(cluster, table):
    """Returns the node that leads the table's first partition."""
    with cluster.nodes[0].client() as client:
        ((_, _, (first, *_)), *_) = client.execute_command("KV.MAP", table)
    port = int(first.rpartition(":")[2])
    return next(node for node in cluster.nodes if node.port == port)


def test_no_acknowledged_write_is_lost_or_doubled_when_a_leader_dies(cluster, connection):
    with Counting(connection, "hashed") as hashed, Counting(connection, "ordered") as ordered:
        hashed.wait_for_writes(), ordered.wait_for_writes()
        node = leader(cluster, "hashed_sums")
        node.kill()
        hashed.wait_for_writes(), ordered.wait_for_writes()
        node.start().wait_listening()
        hashed.wait_for_writes(), ordered.wait_for_writes()
    hashed.check(), ordered.check()
