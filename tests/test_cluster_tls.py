"""Nodes that are not on loopback use TLS with their own certificates, and accept no other
connections."""

import json
import socket

import pytest
import redis
from cluster import Cluster
from data import people, person, write
from harness import Store

COUNT = 300


@pytest.fixture
def over_a_network(tmp_path):
    made = Cluster(Store(tmp_path / "store"), tmp_path, 3)
    for node in made.nodes:
        node.peer_host = "0.0.0.0"
    try:
        yield made.start()
    finally:
        made.end()
    made.check_logs()


def test_nodes_off_loopback_use_tls(over_a_network, tmp_path):
    made = over_a_network
    path = write(people(COUNT), tmp_path / "people.parquet")
    pushed = made.store.push("people", path, args=["--replicas", "1", "--partitions", "6"])
    assert pushed["rollout"]["excluded"] == []
    keys = [f"people:{i}" for i in range(COUNT)]
    for node in made.nodes:
        with node.through_gateway() as client:
            rows = [json.loads(row) for row in client.mget(keys)]
            assert rows == [person(i) for i in range(COUNT)], node.name
    peer = made.nodes[0].peer
    # A plain connection and one without a certificate get no answer.
    with socket.create_connection(("127.0.0.1", peer), timeout=30) as plain:
        plain.sendall(b"*1\r\n$4\r\nPING\r\n")
        assert b"PONG" not in plain.recv(200)
    stranger = redis.Redis(port=peer, ssl=True, ssl_cert_reqs="none", retry=None, socket_timeout=30)
    with pytest.raises(redis.exceptions.ConnectionError):
        stranger.ping()
