"""Rollouts that a kill, a rollback, a cancel or another push interrupts."""

import json
import random
import signal

import pyarrow as pa
import pytest
from cluster import table_of
from data import write
from harness import wait_for

MIB = 1 << 20
ROWS = 10


@pytest.fixture
def slow(shared, tmp_path):
    """Three nodes that copy 2 MiB a second. Table `t` is on two of them. Each push that begins is
    of 10 MiB."""
    made = shared(3, args=["--pull-rate", "2M"])
    chance = random.Random(1)

    def source(version, size=MIB):
        values = [chance.randbytes(size) for _ in range(ROWS)]
        columns = {"id": range(ROWS), "version": [version] * ROWS, "wide": pa.array(values)}
        return write(pa.table(columns), tmp_path / f"t-{version}.parquet")

    def begin(version):
        """Starts a push and waits until nodes prepare."""
        process = made.store.start(*words(source(version)))
        made.wait_for(lambda seen: phase_of(seen) == "preparing")
        return process

    def words(path):
        more = ["--replicas", "2", "--partitions", "6", "--force", "--json"]
        return ["push", "t", path, "--key", "{id}", *more]

    made.begin, made.words, made.source = begin, words, source
    made.store.run(*words(source(1, 100)))
    return made


def phase_of(seen):
    rollout = table_of(seen, "t")["rollout"]
    return rollout and rollout["phase"]


def serves_everywhere(made, version):
    for node in made.nodes:
        with node.through_gateway() as client:
            for i in range(ROWS):
                if client.hget(f"t:{i}", "version") != str(version):
                    return False
    return True


def test_a_rollback_precedes_a_push(slow):
    made = slow
    made.store.run(*made.words(made.source(2, 100)))
    push = made.begin(3)
    back = made.store.json("rollback", "t")
    assert (back["version"], back["previous"]) == (1, 2)
    assert serves_everywhere(made, 1)
    done = made.store.finish(push)
    assert done.code == 3, done.err
    assert (made.table("t")["version"], made.table("t")["rollout"]) == (1, None)
    assert "from version 2 to version 1" in made.store.refuse("rollback", "t")
    assert "serves version 1, not version 2" in made.store.refuse("rollback", "t", "--from", 2)
    # The pushed version was built and kept.
    made.store.run("swap", "t", "3")
    assert serves_everywhere(made, 3)
    assert made.store.json("rollback", "t", "--from", 3)["version"] == 1
    assert serves_everywhere(made, 1)
    assert "keeps no dropped tables" in made.store.refuse("drop", "t", "--yes", "--keep-dropped=1h")


def test_progress_is_reported_while_nodes_prepare(slow):
    done = slow.store.finish(slow.begin(2))
    assert done.code == 0, done.err
    events = [json.loads(line) for line in done.err.splitlines()]
    waits = [event["text"] for event in events if event.get("text", "").startswith("waiting for")]
    assert len(waits) == 1 and "30 min" in waits[0] and "--deadline" in waits[0], events
    seen = [event for event in events if event.get("stage") == "preparing on all nodes"]
    assert any(event["total"] and 0 < event["done"] <= event["total"] for event in seen), seen


def test_a_rollout_is_cancelled(slow):
    made = slow
    push = made.begin(2)
    request = made.table("t")["rollout"]["request"]
    assert made.store.json("cluster", "cancel", request) == {"rollout": request, "cancelled": True}
    done = made.store.finish(push)
    assert done.code == 5, done.err
    assert "cancel" in done.err and "table t" in done.err
    assert (made.table("t")["version"], made.table("t")["rollout"]) == (1, None)
    assert serves_everywhere(made, 1)
    assert "has ended" in made.store.refuse("cluster", "cancel", request)
    # A confirmed version serves, and cannot be cancelled.
    push = made.begin(3)
    request = made.table("t")["rollout"]["request"]
    assert made.store.finish(push).code == 0
    assert "forebay rollback" in made.store.refuse("cluster", "cancel", request)
    assert serves_everywhere(made, 3)


def test_a_rollout_continues_without_its_killed_push(slow):
    made = slow
    push = made.begin(2)
    push.send_signal(signal.SIGKILL)
    push.communicate()
    # Another push meets the rollout, which continues without its client.
    refused = made.store.run(*made.words(made.source(3, 100)), code=None)
    assert refused.code in (4, 5) and "table t" in refused.err, (refused.code, refused.err)
    made.wait_for(lambda seen: phase_of(seen) is None)
    assert made.table("t")["version"] == 2 and serves_everywhere(made, 2)
    made.store.run(*made.words(made.source(4, 100)))
    assert serves_everywhere(made, 4)


def test_two_pushes_of_a_table_at_once(slow):
    made = slow
    first = made.begin(2)
    second = made.store.run(*made.words(made.source(3, 100)), code=4)
    assert "table t" in second.err, second.err
    assert made.store.finish(first).code == 0
    assert serves_everywhere(made, 2)


def test_a_version_that_is_damaged_in_the_store_serves_nowhere(slow):
    made = slow
    built = made.store.run(*made.words(made.source(2, 100)), "--no-swap").json()
    assert built["swapped"] is False and built["version"] == 2
    # A partition without rows has no run.
    run = next(path for path in made.store.runs("t") if path.match("2-*.run"))
    content = run.read_bytes()
    middle = len(content) // 2
    run.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    ended = made.store.run("swap", "t", "2", "--json", code=5)
    assert "serves nowhere" in ended.err and "node n" in ended.err, ended.err
    assert serves_everywhere(made, 1)

    def runs_of_version_2(node):
        return list((node.cache / "tables/t/runs").glob("2-*.run"))

    remaining = lambda: {node.name: runs_of_version_2(node) for node in made.nodes}  # noqa: E731
    wait_for(lambda: not any(remaining().values()), remaining)
    made.store.run(*made.words(made.source(3, 100)))
    assert serves_everywhere(made, 3)
