"""The memory of live tables that are idle, and of many tables under writes."""

import ctypes

import pytest
from harness import wait_for

TABLES = 100
# prctl(2): whether the kernel uses huge pages. Child processes inherit the setting.
PR_SET_THP_DISABLE = 41


def status(process, *names):
    lines = (line.split(":") for line in open(f"/proc/{process.pid}/status"))
    found = {name: int(value.split()[0]) for name, value in lines if name in names}
    return [found[name] for name in names]


@pytest.fixture(autouse=True)
def return_memory_at_once(monkeypatch):
    """Makes the allocator return freed memory at once, and the kernel allocate no huge pages."""
    monkeypatch.setenv("MIMALLOC_PURGE_DELAY", "0")
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0, ctypes.get_errno()
    yield
    assert prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0) == 0, ctypes.get_errno()


def test_idle_tables_use_no_threads_and_little_memory(store):
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
    # Startup work may start threads that end within seconds. Here there is none.
    assert after[1] <= before[1] + 2
    assert after[0] - before[0] <= TABLES * 20, (before, after)


def test_many_tables_together_stay_within_the_memory_budget(store):
    tables = [f"t{number}" for number in range(40)]
    for table in tables:
        store.run("create", table, "--durability", "os", "--partitions", "16")
    # 160 MB of values. Without the limit, most would be in memtables of 640 partitions.
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
        # The budget, the indexes of some thousand runs, and flushes, merges and requests under way.
        # With all tables merging at about the same time, this is 72 MB.
        assert most <= 96 * 1024, f"{most} KB"
        assert client.get(f"{tables[3]}:0-39") == value.encode()


def answers(client, table):
    try:
        return client.get(f"{table}:k") is None
    except Exception:
        return False
