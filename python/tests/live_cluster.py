"""A cluster of three nodes for loads of live tables, and the content of these tables."""

import os

import pyarrow as pa
from cluster import Cluster
from harness import Store

import forebay

LIVE = ("--mode", "live", "--durability", "os")
PARTED = {
    "hashed": ("--partitions", "3"),
    "ordered": ("--order", "ordered", "--boundary", "k003", "--boundary", "k012"),
}
COLUMNS = ("id:int64", "name:text", "half:float64")
ROW = ("--value", "row", *(word for column in COLUMNS for word in ("--column", column)))
PATIENCE_S = 60


class LiveCluster(Cluster):
    def __init__(self, directory, store=None):
        super().__init__(store or Store(directory / "store"), directory, 3, 3)
        self.path = self.store.environment()["FOREBAY_STORE"]

    def create(self, table, *words, replicas=3):
        self.store.json("create", table, *LIVE, "--replicas", replicas, *words)
        return table

    def connect(self):
        at = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return forebay.connect(f"redis://{at}", timeout=PATIENCE_S)

    def all_of(self, table):
        """Returns every key with its value; the value of a row is a dict of its columns."""
        with self.connect() as connection:
            scanned = pa.table(connection[table].scan())
        keys = scanned["key"].to_pylist()
        rows = scanned.drop_columns(["key"]).to_pylist()
        values = [row["value"] if set(row) == {"value"} else row for row in rows]
        assert len(set(keys)) == len(keys)
        return dict(zip(keys, values, strict=True))

    def staged(self, table):
        """Returns the names of the files of loads in the store."""
        if "://" in self.path:
            found = [key.rpartition("/")[2] for key in self.store.keys(f"tables/{table}/")]
        else:
            folder = os.path.join(self.path, "tables", table)
            found = [name for _, _, names in os.walk(folder) for name in names]
        return [name for name in found if name.startswith("load-")]
