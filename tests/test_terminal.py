"""Questions of commands at a terminal, and their messages about other commands."""

import os
import pty
import subprocess
from pathlib import Path

import pytest
from harness import wait_for


def typed(store, *words, text):
    """The result of a command at a terminal, with typed text."""
    terminal, end = pty.openpty()
    process = store.start(*words, stdin=end, stderr=end, stdout=subprocess.PIPE)
    os.close(end)
    os.write(terminal, f"{text}\n".encode())
    out = process.communicate(timeout=90)[0]
    output = b""
    while True:
        try:
            output += os.read(terminal, 4096)
        except OSError:
            break
    os.close(terminal)
    return process.returncode, out.decode(), output.decode()


@pytest.fixture
def versions(store, source):
    for version in (1, 2, 3, 4):
        store.push("people", source(10, version=version), args=["--keep", 9])
    return store


def test_a_second_rollback_asks_for_confirmation(versions):
    versions.run("rollback", "people")
    code, _, output = typed(versions, "rollback", "people", text="no")
    assert code == 1 and "go back from version 3 now" in output
    code, out, _ = typed(versions, "rollback", "people", text="yes")
    assert code == 0 and "people serves version 2" in out


def test_a_drop_asks_for_the_name(versions):
    code, _, output = typed(versions, "drop", "people", text="persons")
    assert code == 2 and "nothing was dropped" in output
    code, _, output = typed(versions, "drop", "people", text="people")
    assert code == 0 and "Type its name" in output
    assert versions.json("tables") == []


def test_a_rollback_reports_a_push_under_way(versions, source):
    words = ["--key", "{id}", "--keep", 9, "--rate", "5K"]
    push = versions.start("push", "people", source(5000, version=5), *words)
    # The test takes no lock, because the push would meet it.
    lock_entry = f":{(versions.path / 'tables/people/push.lock').stat().st_ino} "
    wait_for(lambda: lock_entry in Path("/proc/locks").read_text(), "the push holds its lock")
    output = versions.run("rollback", "people")
    assert "people serves version 3" in output.out and "is under way" in output.err
    push.kill()
    push.communicate(timeout=90)
    assert "under way" not in versions.run("rollback", "people", "--from", 3).err
