"""The configurable node timeout, and requests that wait for a revision."""

import json
import threading
import time


def test_a_dead_node_is_declared_down_by_the_latest_timeout(cluster):
    made = cluster(3, node_timeout="60s")
    assert made.status()["node_timeout_ms"] == 60_000
    done = made.store.json("cluster", "set", "--node-timeout", "1s")
    assert done == {"node_timeout_ms": 1000}
    # With the earlier timeout, the node would stay up for a minute.
    begun = time.monotonic()
    made["n3"].kill()
    made.wait_states(n3="down")
    assert time.monotonic() - begun < 55
    assert made.status()["node_timeout_ms"] == 1000
    made["n3"].start().wait_listening()
    made.wait_up()


def test_a_request_waits_for_a_newer_revision(cluster):
    made = cluster(2)
    node = made["n2"]
    status, text = node.ask("/v1/cluster")
    revision = json.loads(text)["revision"]
    seen = []

    def wait():
        seen.append(node.ask(f"/v1/cluster?after={revision}&wait=60s", seconds=90))

    waiting = threading.Thread(target=wait)
    waiting.start()
    made.store.run("create", "events", "--replicas", "1")
    waiting.join(90)
    (status, text) = seen[0]
    assert status == 200 and json.loads(text)["revision"] > revision
    # Without a change, the answer arrives when the wait ends.
    latest = made.status()["revision"]
    status, text = node.ask(f"/v1/cluster?after={latest + 1000}&wait=50ms")
    assert status == 200 and json.loads(text)["revision"] < latest + 1000
    for wrong in ("wait=soon", "wait=0s", "wait=61s", "after=-1"):
        assert node.ask(f"/v1/cluster?after=1&{wrong}")[0] == 400, wrong


def test_invalid_node_timeouts_are_refused(store):
    for wrong in ("199ms", "11m", "soon"):
        refused = store.refuse("cluster", "create", "--node-timeout", wrong, code=2)
        assert "node-timeout" in refused
    refused = store.refuse("cluster", "create", "--format", "3", "--node-timeout", "5s")
    assert "format 3" in refused and "4" in refused
    store.run("cluster", "create", "--format", "3")
    refused = store.refuse("cluster", "set", "--node-timeout", "5s")
    assert "cluster upgrade" in refused
