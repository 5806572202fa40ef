"""Delta and Iceberg tables, made and read by their own packages: deleted rows stay deleted."""

import base64
import json
import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from object_store import BUCKET
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestWriterV2,
)
from pyiceberg.typedef import Record

import forebay

FIRST = pa.table({"id": [1, 2, 3], "year": [2023, 2024, 2024], "name": ["a", "b", None]})
LATER = pa.table({"id": [4], "year": [2025], "name": ["d"]})


def rows(path, table):
    """Returns the rows of the table in the order of ids."""
    with forebay.open(path) as store:
        got = store[table].get_many(range(1, 20))
    return [row for row in got if row is not None]


def without(id):
    return [row for row in pa.concat_tables([FIRST, LATER]).to_pylist() if row["id"] != id]


def fill(url):
    write_deltalake(url, FIRST, partition_by=["year"])
    write_deltalake(url, LATER, mode="append")
    DeltaTable(url).delete("id = 2")


@pytest.fixture
def delta(tmp_path):
    url = str(tmp_path / "delta")
    fill(url)
    return url


def test_a_delta_table_by_its_path_and_at_a_version(delta, path):
    assert forebay.push(delta, "now", key="{year}", store=path, duplicates="last").rows == 3
    forebay.push(Path(delta), "path", key="{id}", store=path)
    forebay.push(DeltaTable(delta, version=1), "before", key="{id}", store=path)
    forebay.push(DeltaTable(delta, version=0), "first", key="{id}", store=path)
    assert rows(path, "path") == without(2)
    assert rows(path, "before") == pa.concat_tables([FIRST, LATER]).to_pylist()
    assert rows(path, "first") == FIRST.to_pylist()
    forebay.open(path).create(
        "live", value="row", column={"id": "int64", "year": "int64", "name": "text"}
    )
    assert forebay.load(delta, "live", key="{id}", store=path).rows == 3


def test_a_delta_table_of_a_bucket(s3_environment, path):
    url = f"s3://{BUCKET}/lake/delta"
    fill(url)
    forebay.push(url, "t", key="{id}", store=path)
    assert rows(path, "t") == without(2)
    with pytest.raises(forebay.UsageError, match="is a Delta table"):
        forebay.push(f"{url}/**/*.parquet", "t", key="{id}", store=path)


Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"


def deletion_vector(positions):
    """Returns a deletion vector that is stored inline in the log."""
    container = b"".join(struct.pack("<H", at) for at in positions)
    bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(positions) - 1, 16) + container
    data = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    padded = data + bytes(-len(data) % 4)
    text = base64.b85encode(padded).decode().translate(str.maketrans(B85, Z85))
    vector = {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(data)}
    return {**vector, "cardinality": len(positions)}


def test_deletion_vectors_and_mapped_columns(tmp_path, path):
    root = tmp_path / "mapped"
    (root / "_delta_log").mkdir(parents=True)
    columns = [("id", "long", "col-1"), ("name", "string", "col-2")]
    table = pa.table({"col-1": range(1, 9), "col-2": [f"n{i}" for i in range(1, 9)]})
    pq.write_table(table, root / "a.parquet")

    def field(number, name, kind, physical):
        mapping = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
        return {"name": name, "type": kind, "nullable": True, "metadata": mapping}

    fields = [field(number, *column) for number, column in enumerate(columns, start=1)]
    features = ["deletionVectors", "columnMapping"]
    add = {
        "path": "a.parquet",
        "partitionValues": {},
        "size": (root / "a.parquet").stat().st_size,
        "modificationTime": 1,
        "dataChange": True,
        "stats": json.dumps({"numRecords": 8}),
    }
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    protocol |= {"readerFeatures": features, "writerFeatures": features}
    metadata = {
        "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": {
            "delta.columnMapping.mode": "name",
            "delta.columnMapping.maxColumnId": "2",
            "delta.enableDeletionVectors": "true",
        },
    }
    remove = {"path": "a.parquet", "deletionTimestamp": 2, "dataChange": True}
    vector = {**add, "deletionVector": deletion_vector([1, 6])}
    for version, actions in enumerate(
        [
            [{"protocol": protocol}, {"metaData": metadata}, {"add": add}],
            [{"remove": remove}, {"add": vector}],
        ]
    ):
        log = "".join(json.dumps(action) + "\n" for action in actions)
        (root / "_delta_log" / f"{version:020}.json").write_text(log)
    assert forebay.push(root, "t", key="{id}", store=path).rows == 6
    assert [row["id"] for row in rows(path, "t")] == [1, 3, 4, 5, 6, 8]
    assert rows(path, "t")[1] == {"id": 3, "name": "n3"}
    assert forebay.push(DeltaTable(root, version=0), "u", key="{id}", store=path).rows == 8


@pytest.fixture
def catalog(tmp_path):
    made = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    made.create_namespace("db")
    return made


@pytest.fixture
def iceberg(catalog):
    table = catalog.create_table("db.t", schema=FIRST.schema)
    table.append(FIRST)
    table.append(LATER)
    table.delete("id = 2")
    return table


def test_an_iceberg_table_and_its_snapshots(iceberg, path):
    assert forebay.push(iceberg, "now", key="{id}", store=path).rows == 3
    assert rows(path, "now") == without(2)
    first = iceberg.scan(snapshot_id=iceberg.history()[0].snapshot_id)
    forebay.push(first, "first", key="{id}", store=path)
    assert rows(path, "first") == FIRST.to_pylist()
    metadata = iceberg.metadata_location.removeprefix("file://")
    assert forebay.push(metadata, "file", key="{id}", store=path).rows == 3


def test_position_deletes_of_iceberg(iceberg, path, tmp_path, monkeypatch):
    """The package writes no position deletes, so the test makes a snapshot with some."""
    table = iceberg
    scanned = [task.file for task in table.scan().plan_files()]
    (data,) = [file for file in scanned if file.record_count == 2]
    deletes = tmp_path / "deletes.parquet"
    fields = [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
    ]
    columns = [pa.array([data.file_path]), pa.array([0], pa.int64())]
    pq.write_table(pa.table(columns, schema=pa.schema(fields)), deletes)
    (gone,) = pa.table(pq.read_table(data.file_path.removeprefix("file://")))["id"].to_pylist()[:1]
    plain = ManifestWriterV2._meta.fget
    with monkeypatch.context() as patched:
        patched.setattr(ManifestWriterV2, "content", lambda self: ManifestContent.DELETES)
        meta = property(lambda self: {**plain(self), "content": "deletes"})
        patched.setattr(ManifestWriterV2, "_meta", meta)
        with table.transaction() as transaction:
            with transaction.update_snapshot().fast_append() as append:
                file = DataFile.from_args(
                    content=DataFileContent.POSITION_DELETES,
                    file_path=f"file://{deletes}",
                    file_format=FileFormat.PARQUET,
                    partition=Record(),
                    record_count=1,
                    file_size_in_bytes=deletes.stat().st_size,
                )
                file.spec_id = table.spec().spec_id
                append.append_data_file(file)
    assert forebay.push(table.refresh(), "t", key="{id}", store=path).rows == 2
    assert [row["id"] for row in rows(path, "t")] == sorted({1, 3, 4} - {gone})


def test_the_current_version_of_a_catalog_is_not_guessed(iceberg, path):
    root = iceberg.metadata.location.removeprefix("file://")
    with pytest.raises(forebay.UsageError, match="catalog alone says which version is current"):
        forebay.push(root, "t", key="{id}", store=path)
    with pytest.raises(forebay.UsageError, match="is an Iceberg table"):
        forebay.push(f"{root}/data/*.parquet", "t", key="{id}", store=path)
    current = Path(iceberg.metadata_location.removeprefix("file://"))
    (current.parent / "version-hint.text").write_text(current.name)
    assert forebay.push(root, "t", key="{id}", store=path).rows == 3


@pytest.mark.parametrize("package", ["deltalake", "pyiceberg"])
def test_without_the_package_the_error_names_it(delta, iceberg, path, monkeypatch, package):
    table = delta if package == "deltalake" else iceberg.metadata_location
    monkeypatch.setattr("forebay._lake.find_spec", lambda name: None)
    with pytest.raises(forebay.UsageError, match=f"pip install {package}"):
        forebay.push(table, "t", key="{id}", store=path)
