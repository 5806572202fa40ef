"""A feature repository of Feast in a directory, over a Parquet file of the test."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from feast import Entity, FeatureStore, FeatureView, Field, FileSource, PushSource, ValueType
from feast.repo_config import RegistryConfig, RepoConfig
from feast.types import (
    Array,
    Bool,
    Bytes,
    Float32,
    Float64,
    Int32,
    Int64,
    Json,
    Map,
    String,
    UnixTimestamp,
)

ENGINE = {"type": "forebay.feast.ForebayEngine"}
NOW = datetime.now(UTC).replace(microsecond=0)
HOUR = timedelta(hours=1)
START, END = NOW - 100 * HOUR, NOW + HOUR

TYPES = {
    "i32": (Int32, pa.int32(), [1, None, -(2**31)]),
    "i64": (Int64, pa.int64(), [2**52, None, -1]),
    "big": (Int64, pa.int64(), [2**53 + 1, 0, -(2**63)]),
    "f32": (Float32, pa.float32(), [0.5, None, -2.25]),
    "f64": (Float64, pa.float64(), [0.1, None, 1e300]),
    "flag": (Bool, pa.bool_(), [True, None, False]),
    "text": (String, pa.string(), ["é/%", None, ""]),
    "blob": (Bytes, pa.binary(), [b"\xff\x00", None, b"x"]),
    "at": (UnixTimestamp, pa.timestamp("us", "UTC"), [NOW, None, NOW - HOUR]),
    "i64s": (Array(Int64), pa.list_(pa.int64()), [[1, 2], None, [3]]),
    "f32s": (Array(Float32), pa.list_(pa.float32()), [[0.5], None, [1.5, 2.5]]),
    "texts": (Array(String), pa.list_(pa.string()), [["a", ""], None, ["b"]]),
    "json": (Json, pa.string(), ['{"a": 1}', None, "[2]"]),
    "map": (Map, pa.struct([("a", pa.string())]), [{"a": "b"}, None, {"a": "c"}]),
}


class Repo:
    """A project with one feature view, `stats`, for an entity with the join key `id`."""

    def __init__(self, folder: Path, engine: object = ENGINE, **online: object) -> None:
        path = self.path = folder
        self.store_path = path / "store"
        path.mkdir(parents=True, exist_ok=True)
        self.source_path = path / "stats.parquet"
        ours = {"type": "forebay.feast.ForebayOnlineStore", "store": "store"}
        settings = {**ours, **online}
        self.config = RepoConfig(
            project="shop",
            provider="local",
            registry=RegistryConfig(path=str(path / "registry.db"), cache_ttl_seconds=0),
            online_store={name: value for name, value in settings.items() if value is not None},
            offline_store={"type": "file"},
            batch_engine=engine,
            repo_path=path,
            entity_key_serialization_version=3,
        )
        self.features = FeatureStore(config=self.config)

    def write(self, **columns: object) -> None:
        """Writes the offline store. `event_timestamp` and `created` default to NOW."""
        rows = len(columns["id"])  # pyright: ignore
        whole = {"event_timestamp": [NOW] * rows, "created": [NOW] * rows, **columns}
        table = pa.table(
            {k: v if isinstance(v, pa.Array) else pa.array(v) for k, v in whole.items()}
        )
        pq.write_table(table, self.source_path)

    def view(self, schema: dict, name: str = "stats", key=ValueType.INT64, **more) -> FeatureView:
        source = FileSource(
            name=f"{name}_file",
            path=str(self.source_path),
            timestamp_field="event_timestamp",
            created_timestamp_column="created",
        )
        entity = Entity(name="thing", join_keys=["id"], value_type=key)
        view = FeatureView(
            name=name,
            entities=more.pop("entities", [entity]),
            schema=[Field(name=k, dtype=v) for k, v in schema.items()],
            source=PushSource(name=f"{name}_push", batch_source=source),
            **{"ttl": timedelta(days=10), **more},
        )
        self.features.apply([entity, view])
        return self.features.get_feature_view(name)

    def materialize(self, start=START, end=END) -> None:
        self.features.materialize(start, end)

    def read(self, ids: list, *features: str, view: str = "stats", key: str = "id") -> dict:
        answer = self.features.get_online_features(
            [f"{view}:{feature}" for feature in features], [{key: id} for id in ids]
        ).to_dict()
        answer.pop(key, None)
        return answer
