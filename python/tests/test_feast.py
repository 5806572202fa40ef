"""The online store for Feast in one process: the contract of Feast's stores, and our additions.

Feast's own universal tests define the contract: online retrieval, types, pushes and
materialisation. No package has them, so these tests stand for them. `feast_universal.py` runs them
in a checkout of Feast."""

import asyncio
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pyarrow as pa
import pytest
from feast import Entity, ValueType
from feast.infra.key_encoding_utils import serialize_entity_key
from feast.protos.feast.types.EntityKey_pb2 import EntityKey
from feast.protos.feast.types.Value_pb2 import Value
from feast.types import Float64, Int64, String
from feast_repo import END, ENGINE, HOUR, NOW, TYPES, Repo

import forebay
from forebay.feast import ForebayEngineConfig, ForebayOnlineStoreConfig
from forebay.feast._names import key_of, project_table

SQLITE = {"type": "sqlite", "path": "online.db", "store": None}


@pytest.fixture
def repo(tmp_path) -> Repo:
    return Repo(tmp_path / "repo")


def row(id, at=NOW, **values) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "id": [id],
            "event_timestamp": [at],
            "created": [at],
            **{k: [v] for k, v in values.items()},
        }
    )


def versions(repo: Repo, table="shop.stats") -> list[tuple[int, bool]]:
    with forebay.open(repo.store_path) as store:
        return [(one.version, one.serving) for one in store[table].versions()]


# The contract of every store of Feast.


@pytest.mark.parametrize("engine", ["local", ENGINE])
def test_all_types_equal_those_of_sqlite(tmp_path, engine):
    """With Feast's local engine and with ours, results equal those of Feast's own store."""
    ours = Repo(tmp_path / "ours", engine)
    theirs = Repo(tmp_path / "theirs", "local", **SQLITE)
    answers = []
    for repo in (ours, theirs):
        repo.write(id=[1, 2, 3], **{k: pa.array(v, kind) for k, (_, kind, v) in TYPES.items()})
        repo.view({name: kind for name, (kind, _, _) in TYPES.items()})
        repo.materialize()
        answers.append(repo.read([3, 2, 1, 9], *TYPES))
    assert answers[0] == answers[1]
    assert answers[0]["i32"] == [-(2**31), None, 1, None]


def test_the_newest_row_wins(repo):
    """The event timestamp decides, then the creation time: in a file, a write, or across both."""
    repo.write(
        id=[1, 1, 2, 2, 3],
        event_timestamp=[NOW - HOUR, NOW - 2 * HOUR, NOW - HOUR, NOW - HOUR, NOW],
        created=[NOW, NOW, NOW - HOUR, NOW, NOW],
        x=[10, 11, 20, 21, 30],
    )
    repo.view({"x": Int64})
    repo.materialize()
    assert repo.read([1, 2, 3], "x") == {"x": [10, 21, 30]}
    repo.features.write_to_online_store(
        "stats", pd.concat([row(1, x=12), row(1, NOW - HOUR, x=13)])
    )
    repo.features.write_to_online_store("stats", row(3, NOW - HOUR, x=31))
    assert repo.read([1, 3], "x") == {"x": [12, 30]}
    repo.features.write_to_online_store("stats", row(1, NOW - 3 * HOUR, x=14))
    assert repo.read([1], "x") == {"x": [12]}
    # A later materialisation replaces earlier single writes.
    repo.write(id=[1], event_timestamp=[NOW + HOUR / 2], x=[15])
    repo.materialize(NOW, END)
    assert repo.read([1, 2, 3], "x") == {"x": [15, 21, 30]}


def test_event_timestamps_and_statuses(repo):
    repo.write(id=[1], event_timestamp=[NOW - HOUR], x=pa.array([None], pa.int64()))
    repo.view({"x": Int64})
    repo.materialize()
    answer = repo.features.get_online_features(["stats:x"], [{"id": 1}, {"id": 2}])
    (found,) = answer.proto.results[1:]
    assert [at.seconds for at in found.event_timestamps] == [(NOW - HOUR).timestamp(), 0]
    assert list(found.statuses) == [1, 3]  # present (and null), not found
    store, config = repo.features._get_provider().online_store, repo.config
    one = EntityKey(join_keys=["id"], entity_values=[Value(int64_val=1)])
    read = store.online_read(config, repo.features.get_feature_view("stats"), [one])
    assert read == [(NOW - HOUR, {"x": Value()})]


def test_keys(repo):
    """Several join keys, text with the separator, empty text, and no entity."""
    repo.write(id=["a/b", "", "%"], other=[1, 2, 3], x=[1, 2, 3])
    more = Entity(name="other", join_keys=["other"], value_type=ValueType.INT32)
    thing = Entity(name="thing", join_keys=["id"], value_type=ValueType.STRING)
    repo.features.apply([more, thing])
    repo.view({"x": Int64}, key=ValueType.STRING, entities=[thing, more])
    repo.view({"x": Int64}, "everybody", key=ValueType.STRING, entities=[])
    repo.materialize()
    rows = [{"id": id, "other": other} for id, other in (("a/b", 1), ("", 2), ("%", 3), ("", 1))]
    refs = ["stats:x", "everybody:x"]
    answer = repo.features.get_online_features(refs, rows, full_feature_names=True).to_dict()
    assert answer["stats__x"] == [1, 2, 3, None]
    assert answer["everybody__x"][0] in (1, 2, 3) and len(set(answer["everybody__x"])) == 1
    with forebay.open(repo.store_path) as store:
        assert sorted(store["shop.stats"]) == ["%/2", "%25/3", "a%2Fb/1"]
        assert list(store["shop.everybody"]) == ["%"]


def test_keys_differ_where_those_of_feast_do():
    words = ["", "%", "/", "%2F", "a/", "/a", "%25", "a", "b"]
    entities = [
        EntityKey(
            join_keys=["b", "a"], entity_values=[Value(string_val=one), Value(string_val=two)]
        )
        for one in words
        for two in words
    ]
    assert len({key_of(one) for one in entities}) == len(
        {serialize_entity_key(one) for one in entities}
    )
    turned = EntityKey(
        join_keys=["a", "b"], entity_values=[Value(string_val="y"), Value(string_val="x")]
    )
    same = EntityKey(
        join_keys=["b", "a"], entity_values=[Value(string_val="x"), Value(string_val="y")]
    )
    assert key_of(turned) == key_of(same) == "y/x"
    with pytest.raises(forebay.UsageError, match="join key a has no value"):
        key_of(EntityKey(join_keys=["a"], entity_values=[Value()]))


def test_names_of_tables():
    assert project_table("shop", "stats") == "shop.stats"
    long = project_table("shop", "x" * 80)
    assert len(long) + len(".live") == 64 and long != project_table("shop", "x" * 81)
    assert project_table("shop", "a b") != project_table("shop", "a_b")


def test_pushes_and_async(repo):
    repo.write(id=[1], x=[1])
    repo.view({"x": Int64})
    repo.features.push("stats_push", row(1, NOW + HOUR / 2, x=5))
    assert repo.read([1], "x") == {"x": [5]}

    async def both() -> dict:
        await repo.features.initialize()
        await repo.features.push_async("stats_push", row(2, x=6))
        read = await repo.features.get_online_features_async(["stats:x"], [{"id": 1}, {"id": 2}])
        await repo.features.close()
        return read.to_dict()

    assert asyncio.run(both())["x"] == [5, 6]
    # A closed live table can be opened by others; the next read opens it again.
    with forebay.open(repo.store_path) as store:
        assert len(store["shop.stats.live"]) == 2
    assert repo.read([1], "x") == {"x": [5]}


def test_feature_views_are_added_and_removed(repo):
    repo.write(id=[1], x=[1])
    repo.view({"x": Int64})
    repo.view({"x": Int64}, "other")
    repo.materialize()
    repo.features.write_to_online_store("stats", row(1, NOW + HOUR, x=2))
    with forebay.open(repo.store_path) as store:
        assert sorted(store) == ["shop.other", "shop.stats", "shop.stats.live"]
    gone = repo.features.get_feature_view("stats")
    repo.features.apply([], objects_to_delete=[gone], partial=False)
    assert repo.read([1], "x", view="other") == {"x": [1]}
    with forebay.open(repo.store_path) as store:
        assert list(store) == ["shop.other"]
    repo.view({"x": Int64})
    assert repo.read([1], "x") == {"x": [None]}
    repo.features.teardown()
    with forebay.open(repo.store_path) as store:
        assert list(store) == []


def test_a_projects_tables_are_its_own(tmp_path):
    one = Repo(tmp_path / "repo")
    one.write(id=[1], x=[1])
    one.view({"x": Int64})
    one.materialize()
    other = one.features.config.model_copy(update={"project": "else"})
    one.features = type(one.features)(config=other)
    one.view({"x": Int64})
    assert one.read([1], "x") == {"x": [None]}


# Versions.


def test_a_materialisation_is_a_version_and_can_be_rolled_back(repo):
    repo.write(id=[1, 2], x=[1, 2])
    repo.view({"x": Int64})
    repo.materialize()
    repo.write(id=[1, 3], event_timestamp=[NOW] * 2, x=[7, 8])
    with pytest.raises(forebay.GateHeld, match="lost<20%") as held:
        repo.materialize()
    assert held.value.result.version == 2
    assert repo.read([1, 2, 3], "x") == {"x": [1, 2, None]}
    # Feast does not record the range, and an operator can overrule the gate.
    intervals = repo.features.get_feature_view("stats").materialization_intervals
    assert len(intervals) == 1
    with forebay.open(repo.store_path) as store:
        store["shop.stats"].swap(2)
    assert _soon(lambda: repo.read([1, 2, 3], "x")) == {"x": [7, None, 8]}
    with forebay.open(repo.store_path) as store:
        store["shop.stats"].rollback()
    assert _soon(lambda: repo.read([1, 2, 3], "x")) == {"x": [1, 2, None]}


def _soon(read):
    """Reads after the second in which a reader keeps its version."""
    time.sleep(1.1)
    return read()


def test_a_range_replaces_extends_or_merges(repo):
    """A range that covers the earlier ones replaces them. A later range adds changes on top.

    Any other range is merged row by row.
    """
    repo.write(id=[1, 2], event_timestamp=[NOW - 50 * HOUR] * 2, x=[1, 2])
    repo.view({"x": Int64})
    repo.materialize(NOW - 60 * HOUR, NOW - 40 * HOUR)
    # A later range makes a version of the changes only.
    repo.write(id=[2, 3], event_timestamp=[NOW - 30 * HOUR] * 2, x=[20, 30])
    repo.features.materialize_incremental(NOW - 20 * HOUR)
    assert repo.read([1, 2, 3], "x") == {"x": [1, 20, 30]}
    with forebay.open(repo.store_path) as store:
        assert store["shop.stats"].rows_between == (2, 4)
    # An earlier range adds its rows only if the key has no newer row.
    repo.write(id=[1, 4], event_timestamp=[NOW - 70 * HOUR] * 2, x=[-1, -4])
    repo.materialize(NOW - 80 * HOUR, NOW - 40 * HOUR - HOUR)
    assert repo.read([1, 2, 3, 4], "x") == {"x": [1, 20, 30, -4]}
    # A range that covers all others leaves only the rows of the source.
    repo.write(id=[1, 2, 3, 4], x=[5, 6, 7, 8])
    repo.materialize(NOW - 90 * HOUR, END)
    assert repo.read([1, 2, 3, 4], "x") == {"x": [5, 6, 7, 8]}
    with forebay.open(repo.store_path) as store:
        assert store["shop.stats"].rows_between == (4, 4)
    # Without new rows there is no new version.
    before = versions(repo)
    repo.features.materialize_incremental(END + HOUR)
    assert versions(repo) == before


def test_modes(tmp_path):
    repo = Repo(tmp_path / "a", {**ENGINE, "mode": "upsert"})
    repo.write(id=[1], x=[1])
    repo.view({"x": Int64})
    repo.materialize()
    repo.write(id=[2], x=[2])
    repo.materialize()
    assert repo.read([1, 2], "x") == {"x": [1, 2]}
    forced = {"mode": "replace", "views": {"stats": {"force": True}}}
    repo = Repo(tmp_path / "b", {**ENGINE, **forced})
    repo.write(id=[1], x=[1])
    repo.view({"x": Int64})
    repo.materialize()
    repo.write(id=[2], event_timestamp=[END + HOUR / 2], x=[2])
    repo.materialize(END, END + HOUR)
    assert repo.read([1, 2], "x") == {"x": [None, 2]}


def test_features_are_added_changed_and_dropped(repo):
    repo.write(id=[1, 2], x=[1, 2], y=["a", "b"])
    repo.view({"x": Int64, "y": String})
    repo.materialize()
    repo.view({"x": Float64, "z": Int64})
    assert repo.read([1], "z") == {"z": [None]}
    repo.write(id=[2], event_timestamp=[END + HOUR / 2], x=[2.5], z=[9])
    repo.materialize(END, END + HOUR)
    assert repo.read([1, 2], "x", "z") == {"x": [1.0, 2.5], "z": [None, 9]}
    repo.view({"x": String, "z": Int64})
    with pytest.raises(forebay.UsageError, match="x is declared STRING, not 2.5.*again"):
        repo.read([2], "x")


def test_values_that_contradict_their_declaration_are_refused(repo):
    repo.write(id=[1], x=[1.5])
    repo.view({"x": Int64})
    with pytest.raises(forebay.DataError, match="feature x is declared INT64"):
        repo.materialize()
    repo.write(id=[1, 2], x=[2**53 + 1, None])
    with pytest.raises(forebay.DataError, match="came as floats"):
        repo.materialize()
    repo.write(id=pa.array([None, 1], pa.int64()), x=[1, 2])
    with pytest.raises(forebay.DataError, match="1 rows have no id.*the first is row 1"):
        repo.materialize()


# Time to live.


def test_ttl_of_a_feature_view_can_be_kept(tmp_path):
    for enforced, expected in ((False, [1, 2]), (True, [None, 2])):
        repo = Repo(tmp_path / str(enforced), enforce_ttl=enforced)
        repo.write(id=[1, 2], event_timestamp=[NOW - 30 * HOUR, NOW], x=[1, 2])
        repo.view({"x": Int64}, ttl=24 * HOUR)
        repo.materialize()
        assert repo.read([1, 2], "x") == {"x": expected}
        repo.features.write_to_online_store("stats", row(3, NOW - 25 * HOUR, x=3))
        assert repo.read([3], "x") == {"x": [None if enforced else 3]}


def test_rows_expire(tmp_path):
    repo = Repo(tmp_path / "repo", key_ttl_seconds=3)
    repo.write(id=[1], x=[1])
    repo.view({"x": Int64})
    repo.materialize()
    repo.features.write_to_online_store("stats", row(2, x=2))
    assert repo.read([1, 2], "x") == {"x": [1, 2]}
    time.sleep(3.1)
    assert repo.read([1, 2], "x") == {"x": [None, None]}


# Settings and several processes.


def test_a_live_table_is_open_in_one_process(repo):
    repo.write(id=[1], x=[1])
    repo.view({"x": Int64})
    repo.materialize()
    repo.features.write_to_online_store("stats", row(1, NOW + HOUR, x=2))
    # Another feature store of this process has the same tables.
    again = type(repo.features)(config=repo.config)
    assert again.get_online_features(["stats:x"], [{"id": 1}]).to_dict()["x"] == [2]
    asyncio.run(repo.features.close())
    script = (
        f"import forebay, sys; live = forebay.open({str(repo.store_path)!r})['shop.stats.live']; "
        "print('open', flush=True); sys.stdin.read()"
    )
    words, pipe = [sys.executable, "-c", script], subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as holder:
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(forebay.BusyError, match="set online_store.connection"):
            repo.read([1], "x")
        assert Repo(repo.path, read_only=True).read([1], "x") == {"x": [1]}
        holder.stdin.close()
    assert repo.read([1], "x") == {"x": [2]}
    closed = Repo(repo.path, read_only=True)
    with pytest.raises(forebay.UsageError, match="read_only is set"):
        closed.features.write_to_online_store("stats", row(1, x=3))


def test_many_threads_write_the_first_rows(repo):
    repo.write(id=[1], x=[1])
    repo.view({"x": Int64})
    with ThreadPoolExecutor(8) as pool:
        writes = [
            pool.submit(repo.features.write_to_online_store, "stats", row(id, x=id))
            for id in range(16)
        ]
        for write in writes:
            write.result()
    assert repo.read(list(range(16)), "x") == {"x": list(range(16))}


def test_a_missing_store_is_an_error_and_no_absent_feature(repo):
    repo.write(id=[1], x=[1])
    repo.view({"x": Int64})
    missing = Repo(repo.path, store="nowhere")
    with pytest.raises(forebay.MissingError, match="nowhere.*`feast apply` makes it"):
        missing.read([1], "x")
    assert not (repo.path / "nowhere").exists()


def test_settings():
    assert ForebayOnlineStoreConfig().store == "data/forebay"
    assert ForebayOnlineStoreConfig(connection="redis://a").store is None
    for wrong in (
        {"read_only": True, "connection": "redis://a"},
        {"key_ttl_seconds": 0},
        {"stroe": "x"},
    ):
        with pytest.raises(ValueError):
            ForebayOnlineStoreConfig(**wrong)
    with pytest.raises(ValueError):
        ForebayEngineConfig(mode="both")


def test_the_engine_needs_the_store(tmp_path):
    repo = Repo(tmp_path / "repo", **SQLITE)
    repo.write(id=[1], x=[1])
    repo.view({"x": Int64})
    with pytest.raises(forebay.UsageError, match="online_store is of type sqlite"):
        repo.materialize()


def test_each_read_sees_one_version(tmp_path):
    """Threads read while versions change; no answer mixes two of them.

    They ask the online store, because Feast refuses a feature view that is being materialised."""
    repo = Repo(tmp_path / "repo", refresh_seconds=0)
    ids = list(range(200))
    repo.write(id=ids, x=[0] * 200, y=[0] * 200)
    repo.view({"x": Int64, "y": Int64})
    repo.materialize()
    seen, over = set(), threading.Event()
    online, view = (
        repo.features._get_provider().online_store,
        repo.features.get_feature_view("stats"),
    )
    keys = [EntityKey(join_keys=["id"], entity_values=[Value(int64_val=id)]) for id in ids]

    def read() -> int:
        answers = 0
        while not over.is_set():
            rows = online.online_read(repo.config, view, keys)
            values = {value.int64_val for _, row in rows for value in row.values()}
            assert len(values) == 1, values
            seen.update(values)
            answers += 1
        return answers

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        try:
            for number in range(1, 6):
                repo.write(id=ids, x=[number] * 200, y=[number] * 200)
                repo.materialize()
                time.sleep(0.05)
        finally:
            over.set()
        assert all(reader.result() > 0 for reader in readers)
    assert 5 in {*repo.read(ids, "x")["x"]} and len(seen) > 1
