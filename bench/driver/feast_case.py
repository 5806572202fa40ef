"""One contender of `make bench-feast`, in a process of its own: prints what was measured as JSON.

    feast_case.py NAME RECORDS
"""

import contextlib
import datetime
import hashlib
import io
import json
import os
import random
import resource
import shutil
import socket
import sys
import time
from pathlib import Path

import common
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from common import DATA, Process

from feast import Entity, FeatureStore, FeatureView, Field, FileSource, ValueType
from feast.protos.feast.types.EntityKey_pb2 import EntityKey
from feast.protos.feast.types.Value_pb2 import Value
from feast.repo_config import RepoConfig
from feast.types import Bool, Float32, Float64, Int32, Int64, String

TYPES = {"d0": Float64, "d1": Float64, "d2": Float64, "f0": Float32, "f1": Float32,
         "l0": Int64, "l1": Int64, "i0": Int32, "b0": Bool, "t0": String}
UTC = pa.timestamp("us", "UTC")
BATCH, REQUESTS, ENTITIES = 10_000, 300, 100
NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc)
FOREBAY = os.environ.get("FOREBAY", "forebay")


def source(records: int) -> Path:
    """The Parquet file of the features, made the first time."""
    path = DATA / f"feast-{records}.parquet"
    if path.exists():
        return path
    some = np.random.default_rng(1)
    table = pa.table({
        "user_id": some.permutation(records).astype("int64"),
        **{f"d{n}": some.normal(size=records) for n in range(3)},
        **{f"f{n}": some.random(records).astype("float32") for n in range(2)},
        **{f"l{n}": some.integers(0, 1 << 40, records) for n in range(2)},
        "i0": some.integers(0, 1000, records).astype("int32"),
        "b0": some.random(records) < 0.5,
        "t0": [f"text {n:07}" for n in some.integers(0, 10_000_000, records)],
        "event_timestamp": pa.array(np.datetime64("2026-01-02", "us") - np.arange(records).astype("timedelta64[ms]")).cast(UTC),
    })
    new = path.with_suffix(".new")
    pq.write_table(table, new)
    new.rename(path)
    return path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(port: int):
    def ready() -> bool:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True

    return ready


class Case:
    """A contender: its settings of Feast, and its server where it has one."""

    def __init__(self, name: str, folder: Path, stack: contextlib.ExitStack):
        self.folder, self.server, self.engine = folder, None, "local"
        port, store = free_port(), str(folder / "store")
        ours = {"type": "forebay.feast.ForebayOnlineStore", "store": store}
        if name == "sqlite":
            self.online = {"type": "sqlite", "path": f"{store}.db"}
        elif name == "redis":
            self.online = {"type": "redis", "connection_string": f"127.0.0.1:{port}", "skip_dedup": True}
            self.server = ["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder]
        else:
            self.online = ours
            if name != "forebay-rows":
                self.engine = {"type": "forebay.feast.ForebayEngine", "push": {"progress": False}}
            if name == "forebay-server":
                self.online = {**ours, "connection": f"redis://127.0.0.1:{port}"}
                import forebay

                forebay.open(store, create=True).close()
                self.server = [FOREBAY, "serve", "--store", store, "--listen", f"127.0.0.1:{port}"]
        self.process = None
        if self.server:
            self.process = stack.enter_context(Process(self.server, folder / "server.log"))
            self.process.wait_until(answers(port), 30, name)

    def features(self) -> FeatureStore:
        config = RepoConfig(
            project="bench", provider="local", registry=str(self.folder / "registry.db"), online_store=self.online,
            offline_store={"type": "file"}, batch_engine=self.engine, repo_path=self.folder, entity_key_serialization_version=3,
            materialization_config={"online_write_batch_size": BATCH},
        )
        return FeatureStore(config=config)


def percentile(times: list[float], share: float) -> float:
    return sorted(times)[min(int(len(times) * share), len(times) - 1)] * 1000


def timed(work, requests: list) -> list[float]:
    """The seconds of each request, a tenth of them done before."""
    for request in requests[: len(requests) // 10]:
        work(request)
    times = []
    for request in requests:
        begin = time.perf_counter()
        work(request)
        times.append(time.perf_counter() - begin)
    return times


def measure(case: Case, records: int) -> dict:
    features = case.features()
    user = Entity(name="user", join_keys=["user_id"], value_type=ValueType.INT64)
    view = FeatureView(
        name="users", entities=[user], ttl=datetime.timedelta(days=100), schema=[Field(name=name, dtype=kind) for name, kind in TYPES.items()],
        source=FileSource(path=str(source(records)), timestamp_field="event_timestamp"),
    )
    features.apply([user, view])
    begin, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    features.materialize(NOW - datetime.timedelta(days=50), NOW)
    seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF)
    found = {"materialize_s": seconds, "cpu_s": after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime}

    some = random.Random(7)
    requests = [[some.randrange(records) for _ in range(ENTITIES)] for _ in range(REQUESTS)]
    refs = [f"users:{name}" for name in TYPES]

    def whole(ids: list[int]) -> dict:
        return features.get_online_features(refs, [{"user_id": id} for id in ids]).to_dict()

    # A server takes up to a second to see a new version.
    end = time.monotonic() + 30
    while None in whole(requests[0])["i0"]:
        assert time.monotonic() < end, "features are missing"
        time.sleep(0.1)
    answer = json.dumps([whole(ids) for ids in requests[:20]], sort_keys=True)
    found["answer"] = hashlib.sha256(answer.encode()).hexdigest()
    provider, config = features._get_provider(), features.config
    view = features.get_feature_view("users")

    def read(keys: list) -> list:
        return provider.online_store.online_read(config, view, keys, list(TYPES))

    keys = [[EntityKey(join_keys=["user_id"], entity_values=[Value(int64_val=id)]) for id in ids] for ids in requests]
    for part, work, given in (("features", whole, requests), ("read", read, keys)):
        used = time.process_time()
        times = timed(work, given)
        found[f"{part}_cpu_ms"] = (time.process_time() - used) * 1000 / len(times) / 1.1
        found |= {f"{part}_p50_ms": percentile(times, 0.5), f"{part}_p99_ms": percentile(times, 0.99)}
    found["disk_mb"] = sum(file.stat().st_size for file in case.folder.rglob("store*/**/*") if file.is_file()) / 1e6
    if (database := case.folder / "store.db").exists():
        found["disk_mb"] = database.stat().st_size / 1e6
    if case.process:
        found["memory_mb"] = common.memory_of(case.process.pid)["anonymous_bytes"] / 1e6
    return found


def main() -> None:
    name, records = sys.argv[1], int(sys.argv[2])
    source(records)
    folder = common.fresh(f"feast-{name}")
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        case = Case(name, folder, stack)
        # Feast tells what it does on standard output.
        with contextlib.redirect_stdout(io.StringIO()):
            found = measure(case, records)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
