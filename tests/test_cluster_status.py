"""`forebay cluster status` reports what nodes report, and says so if no node answers."""

import hashlib
import json
import re

import pytest
from data import people, write
from harness import wait_for
from secured import certificate
from test_cluster_disasters import move_away

LIVE = ["--mode", "live", "--replicas", "3", "--durability", "os"]


def checked(made, *words):
    """The state as a word, by the exit code, and the output."""
    result = made.store.run("cluster", "status", "--check", "--json", *words, code=None)
    return ["well", "degraded", "down", "not known"][result.code], result


def wait_checked(made, state, *words):
    result = []

    def is_reached():
        result[:] = checked(made, *words)
        return result[0] == state

    wait_for(is_reached, lambda: (state, result))
    return result[1].json()


def http(node):
    return ["--node", f"127.0.0.1:{node.http}"]


@pytest.fixture
def made(cluster, tmp_path):
    made = cluster(3)
    path = write(people(100), tmp_path / "people.parquet")
    made.store.push("one", path, args=["--replicas", "1"])
    made.store.push("people", path, args=["--replicas", "2"])
    return made


def test_dead_nodes_are_not_called_up(made):
    assert wait_checked(made, "well")["source"] == "coordinator"
    assert "is well" in made.store.run("cluster", "status").out
    made["n3"].kill()
    # Table `one` has one replica per partition, and n3 had some of them.
    down = wait_checked(made, "down")["down"]
    assert len(down) == 1 and "parts of table one " in down[0] and "start n3 again" in down[0]
    made.store.run("drop", "one", "--yes")
    assert "node n3 is down" in "".join(wait_checked(made, "degraded")["problems"])
    made["n1"].kill(), made["n2"].kill()
    status = wait_checked(made, "not known")
    assert status["source"] == "catalog" and not status["healthy"]
    assert {node["state"] for node in status["nodes"]} <= {"not known", "down"}
    [problem] = [words for words in status["problems"] if "no node confirmed" in words]
    assert "node n1 at 127.0.0.1" in problem
    text = made.store.run("cluster", "status").out
    assert "is not known" in text and "is well" not in text
    assert not re.search(r"^n\d .* up ", text, re.M), text
    made.start()
    wait_checked(made, "well")


def test_live_tables_without_leaders_are_down(made):
    made.store.run("create", "t", *LIVE)
    wait_checked(made, "well")
    made["n1"].kill(), made["n2"].kill()
    assert any(" of t" in why for why in wait_checked(made, "down", *http(made["n3"]))["down"])
    for name in ("n1", "n2"):
        made[name].start().wait_listening()
    wait_checked(made, "well")


def test_status_asks_nodes_while_the_store_is_away(made, tmp_path):
    move_away(made.store.path, tmp_path / "away")
    state, result = checked(made)
    assert state == "not known" and "--node HOST:PORT" in result.err, result.err
    state, result = checked(made, *http(made["n1"]), *http(made["n2"]))
    assert state in ("well", "degraded") and result.json()["source"] == "coordinator", result
    # No node hears from the others now. A node that does not answer is not called up.
    made["n3"].kill()

    def is_known(*named):
        state, result = checked(made, *named)
        return state == "degraded" and [node["state"] for node in result.json()["nodes"]]

    two = [*http(made["n1"]), *http(made["n2"])]
    wait_for(lambda: is_known(*two) == ["up", "up", "not known"], lambda: checked(made, *two))
    one = is_known(*http(made["n2"]))
    assert one == ["not known", "up", "not known"], one
    state, result = checked(made, "--node", "127.0.0.1:1")
    assert state == "not known" and "127.0.0.1:1: " in result.err, result.err


def test_a_wrong_option_is_not_reported_as_a_cluster_that_is_down(store):
    assert store.run("cluster", "status", "--check", "--nodes", "a", code=None).code == 3
    assert store.run("cluster", "status", "--nodes", "a", code=None).code == 2


def test_users_and_tls(cluster, tmp_path):
    ca, ca_key = certificate(tmp_path, "ca")
    signed = ["-CA", ca, "-CAkey", ca_key, "-addext", "basicConstraints=critical,CA:FALSE"]
    cert, key = certificate(tmp_path, "node", *signed, "-addext", "subjectAltName=IP:127.0.0.1")
    login, users = tmp_path / "login", tmp_path / "users.json"
    secret = hashlib.sha256(b"wonder42").hexdigest()
    watch = {"name": "watch", "password_sha256": secret, "tables": ["*"], "verbs": ["read"]}
    users.write_text(json.dumps({"users": [watch]}))
    login.write_text("watch:wonder42\n")
    made = cluster(3)
    made.restart("--users", users, "--tls-cert", cert, "--tls-key", key)
    how = ["--login", login, "--tls-ca", ca]
    assert wait_checked(made, "well", *how)["coordinator"]
    state, result = checked(made)
    assert state == "not known" and "--tls-ca FILE" in result.out, result
    state, result = checked(made, "--tls-ca", ca)
    assert state == "not known" and "--login FILE" in result.out, result
    login.write_text("watch:wrong\n")
    state, result = checked(made, *how)
    assert state == "not known" and "does not know this user and password" in result.out, result
    other, _ = certificate(tmp_path, "other")
    state, result = checked(made, "--tls-ca", other)
    assert state == "not known" and "signed by nobody in the file" in result.out, result


def test_a_certificate_of_an_authority_is_named(cluster, tmp_path):
    itself, key = certificate(tmp_path, "itself", "-addext", "subjectAltName=IP:127.0.0.1")
    made = cluster(1)
    made.restart("--tls-cert", itself, "--tls-key", key)
    state, result = checked(made, "--tls-ca", itself)
    assert state == "not known" and "CA:FALSE" in result.out, result
