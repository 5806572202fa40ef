"""What commands ask at a terminal, and what they say of others at work."""

import os
import pty
import subprocess
from pathlib import Path

import pytest
from harness import wait_for


def typed(store, *words, text):
    """The result of a command at a terminal where this is typed."""
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


def test_a_second_rollback_is_asked_for(versions):
    versions.run("rollback", "people")
    code, _, output = typed(versions, "rollback", "people", text="no")
    assert code == 1 and "go back from version 3 now" in output
    code, out, _ = typed(versions, "rollback", "people", text="yes")
    assert code == 0 and "people serves version 2" in out


def test_a_drop_wants_the_name(versions):
    code, _, output = typed(versions, "drop", "people", text="persons")
    assert code == 2 and "nothing was dropped" in output
    code, _, output = typed(versions, "drop", "people", text="people")
    assert code == 0 and "Type its name" in output
    assert versions.json("tables") == []


def test_a_rollback_reports_a_push_under_way(versions, source):
    words = ["--key", "{id}", "--keep", 9, "--rate", "5K"]
    push = versions.start("push", "people", source(5000, version=5), *words)
    # Without a lock of its own, which the push would meet.
    held = f":{(versions.path / 'tables/people/push.lock').stat().st_ino} "
    wait_for(lambda: held in Path("/proc/locks").read_text(), "the push is at work")
    output = versions.run("rollback", "people")
    assert "people serves version 3" in output.out and "is under way" in output.err
    push.kill()
    push.communicate(timeout=90)
    assert "under way" not in versions.run("rollback", "people", "--from", 3).err
