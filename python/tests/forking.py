"""Runs a function in a forked process."""

import os
import time
from collections.abc import Callable

import pytest


def in_a_child(check: Callable[[], object]) -> str:
    """Runs a check in a forked process and returns its result; fails after 30 seconds."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            reply = check()
        except BaseException as error:
            reply = f"raised {error!r}"
        os.write(writer, str(reply).encode())
        os._exit(0)
    os.close(writer)
    end = time.monotonic() + 30
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if time.monotonic() > end:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            os.close(reader)
            pytest.fail("the child hangs")
        time.sleep(0.01)
    with os.fdopen(reader) as out:
        return out.read()
