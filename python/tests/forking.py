"""Runs something in a forked process."""

import os
import time
from collections.abc import Callable

import pytest


def in_a_child(check: Callable[[], object]) -> str:
    """Runs it in a forked process, which is not waited for without an end."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            said = check()
        except BaseException as error:
            said = f"raised {error!r}"
        os.write(writer, str(said).encode())
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
