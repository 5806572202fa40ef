"""What live tables cost a server that nobody writes to, and that are written to all together."""

import ctypes

import pytest
from harness import wait_for

TABLES = 100
# prctl(2): whether the kernel gives out huge pages; what a process starts has its setting.
PR_SET_THP_DISABLE = 41


def status(process, *names):
    lines = (line.split(":") for line in open(f"/proc/{process.pid}/status"))
    found = {name: int(value.split()[0]) for name, value in lines if name in names}
    return [found[name] for name in names]


@pytest.fixture(autouse=True)
def nothing_kept_aside(monkeypatch):
    """Neither does the allocator keep memory that was given back, nor the kernel give out 2 MB for
    the first byte of them."""
    monkeypatch.setenv("MIMALLOC_PURGE_DELAY", "0")
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0, ctypes.get_errno()
    yield
    assert prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0) == 0, ctypes.get_errno()


def test_idle_tables_have_no_threads_and_take_little_memory(store):
    store.run("create", "t0")
    with store.serve() as server:
        before = status(server.process, "RssAnon", "Threads")
    for number in range(1, TABLES):
        store.run("create", f"t{number}")
    with store.serve() as server:
        client = server.client()
        wait_for(lambda: answers(client, f"t{TABLES - 1}"), "all tables")
        assert all(client.get(f"t{number}:k") is None for number in range(TABLES))
        after = status(server.process, "RssAnon", "Threads")
    # Threads that were started by what is found at the start end within seconds; there is none.
    assert after[1] <= before[1] + 2
    assert after[0] - before[0] <= TABLES * 20, (before, after)


def test_many_tables_together_keep_to_live_memory(store):
    tables = [f"t{number}" for number in range(40)]
    for table in tables:
        store.run("create", table, "--durability", "os", "--partitions", "16")
    # 160 MB of values, most of which would lie in the buffers of 640 partitions.
    with store.serve("--memory", "16M") as server:
        client = server.client()
        wait_for(lambda: answers(client, tables[-1]), "the tables")
        before = status(server.process, "RssAnon")[0]
        value = "x" * 5000
        most = 0
        for turn in range(20):
            with client.pipeline(transaction=False) as pipe:
                for table in tables:
                    for number in range(40):
                        pipe.set(f"{table}:{turn}-{number}", value)
                pipe.execute()
            most = max(most, status(server.process, "RssAnon")[0] - before)
        # The budget, the indexes of some thousand runs, and what flushes, merges and requests under
        # way need: while all tables merge at about one time it comes to 72 MB.
        assert most <= 96 * 1024, f"{most} KB"
        assert client.get(f"{tables[3]}:0-39") == value.encode()


def answers(client, table):
    try:
        return client.get(f"{table}:k") is None
    except Exception:
        return False
