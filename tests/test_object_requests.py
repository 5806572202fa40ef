"""The number of requests of commands and idle nodes, and when nodes see a swap."""

import collections
import json
import re
import time

import pytest
from data import people, write
from harness import wait_for

# From "Requests" in docs/how-to/use-object-storage.md, and one for the history, which one command
# in 32 sends.
PUSH, SWAP = 22, 12


def asked(proxy, since):
    """The requests since then: the method and the object's name."""
    with proxy.lock:
        exchanges = proxy.exchanges[since:]
    return [f"{one.method} {one.path.partition('/stores/')[2]}" for one in exchanges]


@pytest.fixture
def counted(remote, proxy):
    """Runs a command through the proxy, and returns its requests."""
    store = remote.through(proxy.url, "counted")

    def run(*words, **options):
        since = len(proxy.exchanges)
        store.run(*words, **options)
        made = asked(proxy, since)
        # On a busy machine the command renews its lock, with one request in ten seconds.
        locks = [one for one in made if one.startswith("PUT ") and one.endswith("/push.lock")]
        for renewal in locks[1:]:
            made.remove(renewal)
        # It also reads again what it read more than a second ago.
        for read in {one for one in made if re.match("(GET|HEAD) .", one)}:
            for _ in range(made.count(read) - 1):
                made.remove(read)
        return made

    return run


def push(path, *more):
    return ("push", "people", path, "--key", "{id}", *more)


def test_a_push_of_a_small_table_has_few_requests(counted, remote, source, tmp_path):
    for version in range(1, 6):
        # The gate reads the serving version. From the fourth push on, an old version is removed.
        made = counted(*push(source(1000 + version, version=version)))
        assert len(made) <= PUSH, made
    assert remote.versions("people") == [3, 4, 5]
    assert len(remote.keys("tables/people/runs")) == 3
    for command in (("swap", "people", 4), ("rollback", "people")):
        made = counted(*command)
        assert len(made) <= SWAP, made
    write(people(10, version=9, start=990), tmp_path / "more.parquet")
    made = counted("push", "people", tmp_path / "more.parquet", "--onto", "current")
    assert len(made) <= PUSH, made
    made = counted("compact", "people")
    assert len(made) <= PUSH, made
    assert remote.json("verify", "people")["rows"] == 1005
    made = counted("tables")
    assert len(made) <= 3 + 4, made


def test_a_push_from_another_machine_has_few_requests(counted, remote, proxy, source):
    remote.push("people", source(1000, version=1))
    remote.push("people", source(1000, version=2))
    made = counted(*push(source(1000, version=3)))
    assert len(made) <= PUSH, made
    remote.run("swap", "people", 1)
    made = counted("swap", "people", 2)
    assert len(made) <= SWAP, made


def test_a_swap_of_many_files_has_few_requests(counted, source):
    for version in (1, 2):
        counted(*push(source(5000, version=version), "--partitions", 40))
    made = counted("swap", "people", 1)
    assert len(made) <= SWAP, made


def test_an_idle_node_sends_few_requests_for_any_number_of_tables(remote, proxy, node, source):
    for number in range(10):
        remote.push(f"t{number}", source(20))
    server = node("--poll", "1s", store=remote.through(proxy.url))
    wait_for(lambda: server.value("t9:7", "v1") == "1", "the tables")
    time.sleep(2)
    since, seconds = len(proxy.exchanges), 15
    time.sleep(seconds)
    made = collections.Counter(asked(proxy, since))
    # One request per interval for the document, and one per five intervals for other objects.
    assert made.total() <= seconds * 1.2 + 2, made
    document = sum(count for name, count in made.items() if name.endswith("tables.json"))
    # A busy machine polls less often.
    assert seconds / 2 <= document <= seconds + 1, made
    # A drop is seen, too.
    remote.run("drop", "t3", "--yes")
    wait_for(lambda: server.value("t3:7", "v1") is None, "the drop")
    assert server.stop() == 0


def seen_by_all(nodes, version):
    return lambda: all(node.value("people:7", "v1") == str(version) for node in nodes)


def test_nodes_are_notified_of_a_swap(remote, node, source):
    remote.push("people", source(200, version=1))
    nodes = [node("--poll", "1h", cache=f"cache-{number}") for number in range(5)]
    wait_for(seen_by_all(nodes, 1), "version 1")
    named = json.loads(remote.read("tables.json").rpartition(b"xxh3")[0])
    assert sorted(named["nodes"]) == sorted(f"127.0.0.1:{one.http}" for one in nodes)
    # No node would poll within an hour.
    remote.push("people", source(200, version=2))
    wait_for(seen_by_all(nodes, 2), "version 2")
    remote.run("rollback", "people")
    wait_for(seen_by_all(nodes, 1), "version 1 again")
    remote.push("others", source(10, version=1))
    wait_for(lambda: nodes[3].value("others:7", "v1") == "1", "another table")
    assert nodes[0].stop() == 0
    remaining = json.loads(remote.read("tables.json").rpartition(b"xxh3")[0])
    assert f"127.0.0.1:{nodes[0].http}" not in remaining["nodes"] and len(remaining["nodes"]) == 4


def test_a_node_that_cannot_be_notified_polls(remote, node, source):
    remote.push("people", source(200, version=1))
    server = node("--poll", "1s", "--advertise-http", "off")
    wait_for(seen_by_all([server], 1), "version 1")
    assert b'"nodes": {}' in remote.read("tables.json")
    remote.push("people", source(200, version=2))
    wait_for(seen_by_all([server], 2), "version 2")


def test_a_node_notifies_the_others_of_a_change_that_it_finds(remote, node, source):
    remote.push("people", source(200, version=1))
    polling = node("--poll", "500ms", cache="finds")
    notified = node("--poll", "1h", cache="notified")
    wait_for(seen_by_all([polling, notified], 1), "version 1")
    for version in (2, 3):
        remote.push("people", source(200, version=version))
    wait_for(seen_by_all([polling, notified], 3), "version 3")
    # Like a program that does not know the document: only the pointer changes.
    kept = remote.read("tables.json")
    before = remote.read("tables/people/current")
    remote.run("swap", "people", 2)
    moved = remote.read("tables/people/current")
    wait_for(seen_by_all([polling, notified], 2), "version 2")
    remote.write("tables/people/current", before)
    wait_for(seen_by_all([polling, notified], 3), "a pointer moved by hand")
    assert remote.read("tables.json") != kept and moved != before


def test_an_outdated_document_is_found_and_repaired(remote, proxy, node, source):
    for version in (1, 2):
        remote.push("people", source(200, version=version))
    server = node("--poll", "500ms")
    wait_for(seen_by_all([server], 2), "version 2")

    def refuse(exchange):
        is_document = exchange.method == "PUT" and "tables.json" in exchange.path
        return 403 if is_document else None

    proxy.before = refuse
    store = remote.through(proxy.url, "hindered")
    seen = store.run("swap", "people", 1)
    assert "tables.json" in seen.err and "has moved" in seen.err, seen.err
    assert b'"serving": 2' in remote.read("tables.json")
    wait_for(seen_by_all([server], 1), "the swap")
    wait_for(lambda: b'"serving": 1' in remote.read("tables.json"), "the repair")


@pytest.mark.parametrize("state", ["lost", "damaged"])
def test_a_lost_or_damaged_document_is_rewritten(remote, node, source, state):
    remote.push("people", source(200, version=1))
    remote.push("others", source(10, version=1))
    server = node("--poll", "500ms")
    wait_for(seen_by_all([server], 1), "version 1")

    def damage():
        if state == "damaged":
            return remote.write("tables.json", b"junk")
        name = f"{remote.prefix}/tables.json"
        remote.server.client().delete_object(Bucket="bucket", Key=name)

    def is_whole():
        try:
            text = remote.read("tables.json")
        except Exception:
            return False
        return b'"people"' in text and b'"others"' in text

    damage()
    wait_for(is_whole, "a document made by the node")
    assert server.stop() == 0
    damage()
    remote.push("people", source(200, version=2))
    assert is_whole() and b'"serving": 2' in remote.read("tables.json")


def test_a_node_without_write_permission_follows(remote, proxy, node, source):
    remote.push("people", source(200, version=1))
    name = f"{remote.prefix}/tables.json"
    remote.server.client().delete_object(Bucket="bucket", Key=name)
    proxy.before = lambda exchange: 403 if exchange.method == "PUT" else None
    server = node("--poll", "500ms", store=remote.through(proxy.url))
    wait_for(seen_by_all([server], 1), "version 1")
    assert "may not write tables.json" in server.log.read_text()
    # The first push writes the document, which the node then uses.
    remote.push("people", source(200, version=2))
    wait_for(seen_by_all([server], 2), "version 2")
    remote.push("people", source(200, version=3))
    wait_for(seen_by_all([server], 3), "version 3")


def test_notifications_cause_few_requests(remote, proxy, node, source):
    remote.push("people", source(20, version=1))
    server = node("--poll", "1h", store=remote.through(proxy.url))
    wait_for(seen_by_all([server], 1), "version 1")
    since = len(proxy.exchanges)
    for _ in range(300):
        assert server.ask("/v1/pulls/notify?document=1")[0] == 200
    time.sleep(1)
    assert len(asked(proxy, since)) <= 30
    assert server.ask("/v1/pulls/notify?document=x")[0] == 400


def test_after_many_swaps_in_a_row_the_last_one_serves(remote, node, source):
    for version in (1, 2):
        remote.push("people", source(20, version=version))
    server = node("--poll", "1h")
    wait_for(seen_by_all([server], 2), "version 2")
    for number in range(15):
        remote.run("swap", "people", 1 + number % 2)
    wait_for(seen_by_all([server], 1), "the last swap")


def test_pushes_of_many_tables_at_once_are_all_in_the_document(remote, source):
    path = source(20)
    stores = [remote.through(remote.server.url, f"machine-{number}") for number in range(6)]
    running = [
        store.start("push", f"t{number}", path, "--key", "{id}")
        for number, store in enumerate(stores)
    ]
    for store, process in zip(stores, running, strict=True):
        result = store.finish(process)
        assert (result.code, result.err.count("tables.json")) == (0, 0), result.err
    document = json.loads(remote.read("tables.json").rpartition(b"xxh3")[0])
    assert sorted(document["tables"]) == [f"t{number}" for number in range(6)]


def test_nodes_write_nothing_into_an_emptied_store(remote, node, source):
    remote.push("people", source(100, version=1))
    server = node("--poll", "500ms")
    wait_for(lambda: server.value("people:7", "v1") == "1", "version 1")
    remote.empty()
    time.sleep(4)
    assert remote.keys() == []
    assert server.stop() == 0


def test_an_old_document_does_not_block_a_new_store(remote, source):
    remote.write("tables.json", b"left by a program from before")
    assert remote.push("people", source(100, version=1))["version"] == 1
    assert remote.json("tables")[0]["serving"] == 1
