"""Six faults at five moments of a push, with real processes over a bucket.

In every case no reply is mixed, and the push's exit code is true. After healing, all nodes serve
one version, and the next push succeeds.

The moments are those of the simulator (sim_tests/matrix.rs). The test reaches them by holding a
request to the bucket, or by stalling a node's disk:

    preparing   the first runs are requested; no node has any
    verifying   two nodes have verified the version, and one still fetches it
    committing  the head is written, and the coordinator does not know it yet
    confirming  the head is known, and one node does not confirm that it serves it
    reverting   a node did not confirm for 10 s, and does not revert; another node fails

The fault at each moment:

    node dead         kill -9; the node starts again when the push has ended
    node cut off      no traffic to the bucket and all nodes, in both directions; clients reach it
    coordinator dead  kill -9; the node starts again at once
    store away        503 for nodes and commands, until there is no coordinator any more
    damage            preparing: one node receives damaged runs. Later the version is already
                      verified, so that node's disk is full instead
    operator          preparing, committing: the push is killed. Otherwise a second push starts
"""

import json
import re
import threading
from contextlib import contextmanager

import pytest
from cluster import Reading, table_of
from disks import fill, make_room
from fault_injection import (
    Gate,
    gets_head,
    held,
    is_of_run,
    phase_of,
    puts_head,
    puts_phase,
    read_all,
    stalled,
    versions_at,
)
from harness import wait_for

# The exit code of the push. If the store is away, missing runs may or may not arrive. A killed push
# continues without its command.
TABLE = """
    fault             preparing  verifying  committing  confirming  reverting
    node dead         6          6          6           6           5
    node cut off      6          6          6           6           5
    coordinator dead  0          0          0           0           5
    store away        0/5        0/5        0           0           5
    damage            5          0          0           0           5
    operator          killed     0          killed      0           5
"""
ROWS = [re.split("  +", line.strip()) for line in TABLE.strip().splitlines()]
CASES = {
    (fault, moment): code
    for fault, *codes in ROWS[1:]
    for moment, code in zip(ROWS[0][1:], codes, strict=True)
}
SIGKILL = -9
# Pause between two reads at each node. All traffic between nodes goes through this process.
PAUSE_S = 0.05
CODES = {"killed": [SIGKILL], "0/5": [0, 5], "0": [0], "5": [5], "6": [6]}


@contextmanager
def preparing(made, table, hit, other):
    gate = Gate()

    def watch(node, exchange, is_done):
        if is_of_run(exchange) and not is_done:
            gate.hold()

    with held(made, watch, gate):
        yield gate.wait_reached


@contextmanager
def verifying(made, table, hit, other):
    gate = Gate()

    def watch(node, exchange, is_done):
        if is_of_run(exchange) and not is_done and node is other:
            gate.hold()

    def two_are_ready(status):
        rollout = table_of(status, "t")["rollout"]
        return rollout and rollout["ready"] == 2

    def wait():
        gate.wait_reached()
        made.wait_for(two_are_ready)

    with held(made, watch, gate):
        yield wait


@contextmanager
def committing(made, table, hit, other):
    gate, documents = Gate(), []
    is_written = threading.Event()

    def watch(node, exchange, is_done):
        if puts_phase(exchange, "committed"):
            documents.append(exchange)
        elif documents and puts_head(exchange):
            is_written.set()
            if is_done:
                gate.hold()
        elif is_written.is_set() and gets_head(exchange):
            # Otherwise a node could serve, and report it, before the fault.
            gate.wait_opened()

    def wait():
        gate.wait_reached()
        head = re.search(rb'"revision":(\d+)', made.store.read("cluster/head"))
        assert int(head[1]) > made.ask_coordinator()["revision"], "the coordinator knows it"

    with held(made, watch, gate):
        yield wait


def confirming(made, table, hit, other):
    return stalled(made, table, hit, "committed")


def reverting(made, table, hit, other):
    return stalled(made, table, other, "reverting")


MOMENTS = {one.__name__: one for one in (preparing, verifying, committing, confirming, reverting)}
# The phase that the coordinator reports at each moment. It does not know a commit at once.
PHASES = {
    "preparing": "preparing",
    "verifying": "preparing",
    "committing": "preparing",
    "confirming": "committed",
    "reverting": "reverting",
}


def inject(made, table, fault, moment, hit, push):
    if fault in ("node dead", "coordinator dead"):
        hit.kill()
    elif fault == "node cut off":
        made.cut_off(hit)
    elif fault == "store away":
        made.is_away = True
    elif fault == "damage" and moment == "preparing":
        made.damaged = hit
    elif fault == "damage":
        fill(hit.disk)
    elif CASES[fault, moment] == "killed":
        push.kill()
    else:
        assert "table t" in table.push(code=4)


def has_no_coordinator(made):
    status = made.ask_coordinator()
    return status is None or status["coordinator"] is None


def end_fault(made, fault, hit):
    """Ends those faults that end before the push does."""
    if fault == "coordinator dead":
        hit.start().wait_listening()
    elif fault == "store away":
        wait_for(lambda: has_no_coordinator(made), made.ask_coordinator)
        made.is_away = False


# One severe case of each fault, so that each moment occurs. The simulator has all cases
# (sim_tests/matrix.rs).
DAILY = {
    ("store away", "preparing"),
    ("coordinator dead", "committing"),
    ("node dead", "confirming"),
    ("node cut off", "reverting"),
}
PARAMETERS = [
    pytest.param(*case, marks=[] if case in DAILY else [pytest.mark.nightly]) for case in CASES
]


@pytest.mark.parametrize(("fault", "moment"), PARAMETERS)
def test_a_fault_at_a_moment_of_a_push(tables, fault, moment):
    table = tables.take()
    made, before = table.made, table.version
    coordinator, *others = made.roles()
    hit, other = (coordinator, others[0]) if fault == "coordinator dead" else others
    with readers_of(made, before) as readers:
        new, serving = run_case(table, fault, moment, hit, other)
        for reader in readers.values():
            reader.wait_for(table.version)
    for node, reader in readers.items():
        reader.end()
        assert reader.mixed == []
        # Reads fail at a dead node, and at an isolated node without the rows.
        if node is not hit or fault not in ("node dead", "node cut off", "coordinator dead"):
            assert reader.failed == []
            steps = [new] if serving == new else []
            seen = [[before, *steps, table.version]]
            if moment == "reverting":
                # Readers may have seen the version that was rolled back.
                seen.append([before, new, before, table.version])
            assert reader.seen in seen
    tables.give_back(table)


@contextmanager
def readers_of(made, version):
    readers = {node: Reading(node.through_gateway(), read_all, PAUSE_S) for node in made.nodes}
    try:
        for reader in readers.values():
            reader.wait_for(version)
        yield readers
    finally:
        for reader in readers.values():
            reader.over.set()


def run_case(table, fault, moment, hit, other):
    """Pushes, injects the fault and heals. Returns the new version, and the one that serves."""
    made, before = table.made, table.version
    with MOMENTS[moment](made, table, hit, other) as wait:
        push = table.begin()
        wait()
        # The coordinator's status, which may lag behind the newest revision.
        rollout = table_of(made.wait_for(lambda status: True), "t")["rollout"]
        assert rollout["phase"] == PHASES[moment]
        new = rollout["to"]
        inject(made, table, fault, moment, hit, push)
    end_fault(made, fault, hit)
    done = made.store.finish(push)
    if done.code == SIGKILL:
        made.wait_for(lambda status: phase_of(status) is None)
    serving = check_exit_code(made, table, done, CODES[CASES[fault, moment]], hit, before, new)
    made.heal()
    for node in made.nodes:
        make_room(node.disk)
        if not node.alive():
            node.start().wait_listening()
    made.wait_up()
    status = made.table("t")
    assert (status["version"], status["rollout"]) == (serving, None)
    for node in made.nodes:
        wait_for(lambda node=node: versions_at(node) == {serving}, node.name)
    result = table.push()
    table.version = result["version"]
    assert result["rollout"]["excluded"] == []
    for node in made.nodes:
        assert versions_at(node) == {table.version}
    return new, serving


def check_exit_code(made, table, done, expected, hit, before, new):
    """Checks that the exit code is true of the serving version, and returns that version."""
    assert done.code in expected, (done.code, done.err)
    lines = done.out.splitlines()
    if done.code == 6:
        assert json.loads(lines[-1])["rollout"]["excluded"] == [hit.name]
    elif done.code == 0:
        assert json.loads(lines[-1])["rollout"]["excluded"] == []
    serving = before if done.code == 5 else new
    for node in made.alive():
        # An isolated node may answer with the previous version, or with the one that was rolled
        # back.
        if node.name not in made.cut:
            assert versions_at(node) == {serving}, node.name
    return serving
