"""`forebay.connect` to a cluster of three nodes: every key is read from a node that has it."""

import signal
import threading

import pyarrow as pa
import pytest
from cluster import Cluster
from harness import Store as Files
from harness import wait_for

import forebay

ROWS = 3000
PATIENCE_S = 20


def numbered(version: int) -> pa.Table:
    return pa.table({"id": list(range(ROWS)), "v": [version] * ROWS})


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    directory = tmp_path_factory.mktemp("connect")
    files = Files(directory / "store")
    made = Cluster(files, directory, 3, 3)
    try:
        made.start()
        for name, key, order in (("hashed", "{id}", "hashed"), ("ordered", "{id:05}", "ordered")):
            push(files, name, 1, key=key, order=order, replicas=2, partitions=6)
        yield made
    finally:
        made.end()
    made.check_logs()


def push(files, table: str, version: int, **options):
    options = {"key": "{id}", **options}
    return forebay.push(numbered(version), table, store=str(files.path), **options)


@pytest.fixture
def connection(cluster):
    # The first address does not answer; the second one does.
    at = f"127.0.0.1:1,127.0.0.1:{cluster.nodes[1].port}"
    with forebay.connect(f"redis://{at}", timeout=PATIENCE_S) as made:
        yield made


def test_every_key_is_read(connection):
    hashed, ordered = connection["hashed"], connection["ordered"]
    assert hashed.order == "hashed" and ordered.version == 1
    keys = [*range(ROWS), "none", *range(50)]
    rows = hashed.get_many(keys)
    assert [row and row["id"] for row in rows] == [*range(ROWS), None, *range(50)]
    assert [hashed[key]["id"] for key in range(200)] == list(range(200))
    rows = ordered.get_many([f"{key:05}" for key in reversed(range(ROWS))])
    assert [row["id"] for row in rows] == list(reversed(range(ROWS)))
    assert ordered.get("none") is None
    assert len(hashed.get_versioned(7).version) == 32


def test_each_key_goes_to_a_node_that_has_it(cluster, connection):
    def forwarded():
        names = ("answered", "redirected")
        metric = 'forebay_commands_routed_total{{outcome="{}"}}'.format
        return sum(node.metric(metric(name)) or 0 for node in cluster.nodes for name in names)

    tables = [(connection["hashed"], "{}"), (connection["ordered"], "{:05}")]
    before = forwarded()
    for table, form in tables:
        for key in range(300):
            assert table[form.format(key)]["id"] == key
    assert forwarded() == before


def test_tables_are_scanned_whole(cluster, connection):
    for name in ("hashed", "ordered"):
        scanned = pa.table(connection[name].scan()).sort_by("id")
        assert scanned == numbered(1), name
    for reverse in (False, True):
        scan = connection["ordered"].scan("00100", "02900", reverse=reverse)
        found = [row["id"] for _, row in scan]
        assert found == sorted(range(100, 2900), reverse=reverse)
    last = list(connection["ordered"].scan(reverse=True, limit=2))
    assert [key for key, _ in last] == [f"{ROWS - 1:05}", f"{ROWS - 2:05}"]


def test_a_gateway_answers_like_a_server(cluster):
    seeds = ",".join(f"127.0.0.1:{node.gateway}" for node in cluster.nodes)
    with forebay.connect(f"redis://{seeds}") as connection:
        assert len(connection["hashed"].get_many(range(500))) == 500
        assert pa.table(connection["hashed"].scan()).sort_by("id") == numbered(1)
        assert pa.table(connection["ordered"].scan()) == numbered(1)


def test_writes_to_batch_tables_are_refused(connection):
    with pytest.raises(forebay.UsageError, match="batch table"):
        connection["hashed"].put("1", "x")
    with pytest.raises(forebay.UsageError, match="batch table"):
        connection["hashed"].delete("1")
    with pytest.raises(forebay.MissingError, match="no table 'none'"):
        connection["none"]


def test_no_reply_mixes_versions_while_one_is_rolled_out(cluster, connection):
    table, over, seen, failed = connection["hashed"], threading.Event(), set(), []

    def read():
        while not over.is_set():
            try:
                versions = {row["v"] for row in table.get_many(range(0, ROWS, 7))}
                assert len(versions) == 1
                seen.update(versions)
            except Exception as error:
                failed.append(error)
                return

    thread = threading.Thread(target=read)
    thread.start()
    try:
        wait_for(lambda: 1 in seen or failed, "the first version")
        push(cluster.store, "hashed", 2, replicas=2, partitions=6)
        wait_for(lambda: 2 in seen or failed, "the second version")
    finally:
        over.set()
        thread.join()
    assert not failed and seen == {1, 2}
    wait_for(lambda: table.version == 2, "all nodes serve it")
    assert pa.table(table.scan())["v"].unique().to_pylist() == [2]


def test_reads_route_around_a_stopped_node(cluster):
    with forebay.connect(f"redis://127.0.0.1:{cluster.nodes[0].port}", timeout=2) as connection:
        tables = [(connection["ordered"], "{:05}"), (connection["hashed"], "{}")]
        cluster.nodes[2].signal(signal.SIGSTOP)
        try:
            for table, form in tables:
                rows = table.get_many([form.format(key) for key in range(ROWS)])
                assert [row["id"] for row in rows] == list(range(ROWS))
        finally:
            cluster.nodes[2].signal(signal.SIGCONT)
            cluster.wait_up()


def test_reads_route_around_a_dead_node(cluster, connection):
    ordered, hashed = connection["ordered"], connection["hashed"]
    assert ordered["00001"] and hashed[1]
    cluster.nodes[2].kill()
    try:
        keys = range(0, ROWS, 3)
        rows = ordered.get_many([f"{key:05}" for key in keys])
        assert [row["id"] for row in rows] == list(keys)
        assert [row["id"] for row in hashed.get_many(keys)] == list(keys)
        assert len(list(ordered.scan())) == ROWS
    finally:
        cluster.nodes[2].start().wait_listening()
        cluster.wait_up()
    assert [row["id"] for row in hashed.get_many(range(100))] == list(range(100))


def test_a_push_names_the_nodes_that_it_excluded(cluster):
    cluster.nodes[2].kill()
    try:
        result = push(cluster.store, "left", 1, partitions=2)
        assert result.swapped and result.excluded == (cluster.nodes[2].name,)
        assert result.undone is None and str(result).endswith(cluster.nodes[2].name)
    finally:
        cluster.nodes[2].start().wait_listening()
        cluster.wait_up()
    assert push(cluster.store, "left", 2, partitions=2).excluded == ()
