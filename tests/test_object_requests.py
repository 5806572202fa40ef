"""How many requests commands and idle nodes cost, and who sees a swap when."""

import collections
import json
import re
import time

import pytest
from data import people, write
from harness import wait_for

# docs/how-to/use-object-storage.md, Requests; and one for the history, in one command of 32.
PUSH, SWAP = 22, 12


def asked(proxy, since):
    """The requests since then, one word and the name each."""
    with proxy.lock:
        exchanges = proxy.exchanges[since:]
    return [f"{one.method} {one.path.partition('/stores/')[2]}" for one in exchanges]


@pytest.fixture
def counted(remote, proxy):
    """Runs a command through the proxy, and gives what it asked."""
    store = remote.through(proxy.url, "counted")

    def run(*words, **options):
        since = len(proxy.exchanges)
        store.run(*words, **options)
        made = asked(proxy, since)
        # On a busy machine the lock is renewed, which is a request for each ten seconds.
        locks = [one for one in made if one.startswith("PUT ") and one.endswith("/push.lock")]
        for renewal in locks[1:]:
            made.remove(renewal)
        # There, what was read more than a second ago is read again.
        for read in {one for one in made if re.match("(GET|HEAD) .", one)}:
            for _ in range(made.count(read) - 1):
                made.remove(read)
        return made

    return run


def push(path, *more):
    return ("push", "people", path, "--key", "{id}", *more)


def test_a_push_of_a_small_table_has_few_requests(counted, remote, source, tmp_path):
    for version in range(1, 6):
        # The gate reads what serves, and from the fourth on an old version is removed.
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


def test_a_push_from_another_machine_has_as_few(counted, remote, proxy, source):
    remote.push("people", source(1000, version=1))
    remote.push("people", source(1000, version=2))
    made = counted(*push(source(1000, version=3)))
    assert len(made) <= PUSH, made
    remote.run("swap", "people", 1)
    made = counted("swap", "people", 2)
    assert len(made) <= SWAP, made


def test_a_swap_of_many_files_has_no_more(counted, source):
    for version in (1, 2):
        counted(*push(source(5000, version=version), "--partitions", 40))
    made = counted("swap", "people", 1)
    assert len(made) <= SWAP, made


def test_an_idle_node_asks_as_little_whatever_the_number_of_tables(remote, proxy, node, source):
    for number in range(10):
        remote.push(f"t{number}", source(20))
    server = node("--poll", "1s", store=remote.through(proxy.url))
    wait_for(lambda: server.value("t9:7", "v1") == "1", "the tables")
    time.sleep(2)
    since, seconds = len(proxy.exchanges), 15
    time.sleep(seconds)
    made = collections.Counter(asked(proxy, since))
    # One each interval for the document, and one each fifth for something else.
    assert made.total() <= seconds * 1.2 + 2, made
    document = sum(count for name, count in made.items() if name.endswith("tables.json"))
    # A busy machine looks less often.
    assert seconds / 2 <= document <= seconds + 1, made
    # A drop ends there, too.
    remote.run("drop", "t3", "--yes")
    wait_for(lambda: server.value("t3:7", "v1") is None, "the drop")
    assert server.stop() == 0


def seen_by_all(nodes, version):
    return lambda: all(node.value("people:7", "v1") == str(version) for node in nodes)


def test_nodes_are_told_of_a_swap(remote, node, source):
    remote.push("people", source(200, version=1))
    nodes = [node("--poll", "1h", cache=f"cache-{number}") for number in range(5)]
    wait_for(seen_by_all(nodes, 1), "version 1")
    named = json.loads(remote.read("tables.json").rpartition(b"xxh3")[0])
    assert sorted(named["nodes"]) == sorted(f"127.0.0.1:{one.http}" for one in nodes)
    # None of them would look by itself within an hour.
    remote.push("people", source(200, version=2))
    wait_for(seen_by_all(nodes, 2), "version 2")
    remote.run("rollback", "people")
    wait_for(seen_by_all(nodes, 1), "version 1 again")
    remote.push("others", source(10, version=1))
    wait_for(lambda: nodes[3].value("others:7", "v1") == "1", "another table")
    assert nodes[0].stop() == 0
    left = json.loads(remote.read("tables.json").rpartition(b"xxh3")[0])
    assert f"127.0.0.1:{nodes[0].http}" not in left["nodes"] and len(left["nodes"]) == 4


def test_a_node_that_cannot_be_told_polls(remote, node, source):
    remote.push("people", source(200, version=1))
    server = node("--poll", "1s", "--advertise-http", "off")
    wait_for(seen_by_all([server], 1), "version 1")
    assert b'"nodes": {}' in remote.read("tables.json")
    remote.push("people", source(200, version=2))
    wait_for(seen_by_all([server], 2), "version 2")


def test_what_one_node_finds_the_others_are_told(remote, node, source):
    remote.push("people", source(200, version=1))
    finds = node("--poll", "500ms", cache="finds")
    seen = node("--poll", "1h", cache="told")
    wait_for(seen_by_all([finds, seen], 1), "version 1")
    for version in (2, 3):
        remote.push("people", source(200, version=version))
    wait_for(seen_by_all([finds, seen], 3), "version 3")
    # As a program does that knows nothing of the document: the pointer alone moves.
    kept = remote.read("tables.json")
    before = remote.read("tables/people/current")
    remote.run("swap", "people", 2)
    moved = remote.read("tables/people/current")
    wait_for(seen_by_all([finds, seen], 2), "version 2")
    remote.write("tables/people/current", before)
    wait_for(seen_by_all([finds, seen], 3), "a pointer moved by hand")
    assert remote.read("tables.json") != kept and moved != before


def test_a_document_that_is_left_behind_is_found_and_repaired(remote, proxy, node, source):
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
def test_a_document_that_is_lost_or_damaged_is_made_anew(remote, node, source, state):
    remote.push("people", source(200, version=1))
    remote.push("others", source(10, version=1))
    server = node("--poll", "500ms")
    wait_for(seen_by_all([server], 1), "version 1")

    def spoil():
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

    spoil()
    wait_for(is_whole, "a document made by the node")
    assert server.stop() == 0
    spoil()
    remote.push("people", source(200, version=2))
    assert is_whole() and b'"serving": 2' in remote.read("tables.json")


def test_a_node_that_may_not_write_follows_all_the_same(remote, proxy, node, source):
    remote.push("people", source(200, version=1))
    name = f"{remote.prefix}/tables.json"
    remote.server.client().delete_object(Bucket="bucket", Key=name)
    proxy.before = lambda exchange: 403 if exchange.method == "PUT" else None
    server = node("--poll", "500ms", store=remote.through(proxy.url))
    wait_for(seen_by_all([server], 1), "version 1")
    assert "may not write tables.json" in server.log.read_text()
    # The first push makes the document, which the node then goes by.
    remote.push("people", source(200, version=2))
    wait_for(seen_by_all([server], 2), "version 2")
    remote.push("people", source(200, version=3))
    wait_for(seen_by_all([server], 3), "version 3")


def test_hints_cost_little(remote, proxy, node, source):
    remote.push("people", source(20, version=1))
    server = node("--poll", "1h", store=remote.through(proxy.url))
    wait_for(seen_by_all([server], 1), "version 1")
    since = len(proxy.exchanges)
    for _ in range(300):
        assert server.ask("/v1/pulls/notify?document=1")[0] == 200
    time.sleep(1)
    assert len(asked(proxy, since)) <= 30
    assert server.ask("/v1/pulls/notify?document=x")[0] == 400


def test_of_many_swaps_in_a_row_the_last_one_is_seen(remote, node, source):
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


def test_a_store_that_is_emptied_gets_nothing_from_its_nodes(remote, node, source):
    remote.push("people", source(100, version=1))
    server = node("--poll", "500ms")
    wait_for(lambda: server.value("people:7", "v1") == "1", "version 1")
    remote.empty()
    time.sleep(4)
    assert remote.keys() == []
    assert server.stop() == 0


def test_what_nodes_noted_is_not_in_the_way_of_a_new_store(remote, source):
    remote.write("tables.json", b"left by a program from before")
    assert remote.push("people", source(100, version=1))["version"] == 1
    assert remote.json("tables")[0]["serving"] == 1
