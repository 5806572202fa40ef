"""Users that change while the server runs (SIGHUP), and wrong passwords in its log."""

import hashlib
import json
import signal

import pytest
import redis
from harness import wait_for


def write_users(path, passwords):
    users = [
        {
            "name": name,
            "password_sha256": hashlib.sha256(password.encode()).hexdigest(),
            "tables": ["*"],
            "verbs": ["read", "write"],
        }
        for name, password in passwords.items()
    ]
    path.write_text(json.dumps({"users": users}))


def test_sighup_reloads_users(store, tmp_path):
    store.run("create", "kv")
    users = tmp_path / "users.json"
    write_users(users, {"old": "one", "kept": "two"})
    with store.serve("--users", users) as server:
        old = server.client(username="old", password="one")
        kept = server.client(username="kept", password="two")
        assert old.ping() and kept.ping()

        users.write_text("{}")
        server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "nothing was changed" in server.log.read_text(), "logged")
        assert old.ping() and kept.ping()

        write_users(users, {"new": "three", "kept": "two"})
        server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "were read again" in server.log.read_text(), "logged")
        with pytest.raises(redis.AuthenticationError):
            old.ping()
        assert kept.ping()
        assert server.client(username="new", password="three").ping()


def test_wrong_passwords_are_logged_with_their_address(store, tmp_path):
    store.run("create", "kv")
    users = tmp_path / "users.json"
    write_users(users, {"user": "secret"})
    with store.serve("--users", users) as server:
        for _ in range(3):
            with pytest.raises(redis.AuthenticationError):
                server.client(username="user", password="guess").ping()
        wait_for(lambda: "wrong password" in server.log.read_text(), "logged")
        lines = [line for line in server.log.read_text().splitlines() if "wrong password" in line]
        assert "address=127.0.0.1:" in lines[0] and "user" in lines[0], lines[0]
        assert "guess" not in server.log.read_text()
