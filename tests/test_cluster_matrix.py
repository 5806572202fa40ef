"""Six faults at five moments of a push, with real processes over a bucket. Whatever happens, no
reply is mixed, the push's exit code is true, and what is healed serves one version and takes the
next push.

The moments are those of the simulator (sim_tests/matrix.rs); they are met by holding a request to
the bucket, or a node's disk:

    preparing   the first runs are asked for; nobody has any
    verifying   two nodes have proved the version, and one is still bringing it
    committing  the head is written, and the coordinator does not know yet
    confirming  the head is known, and one node does not come to say that it serves it
    reverting   a node did not say so for 10 s, and does not come to go back; another one is struck

What a fault is at each moment:

    node dead         kill -9; it is started again when the push has ended
    node cut off      silence between it and the bucket and all nodes, both ways; clients reach it
    coordinator dead  kill -9; it is started again at once
    store away        503 to nodes and commands alike, until there is no coordinator any more
    damage            preparing: runs come damaged to one node. From then on a version is here and
                      read back, so the disk of that node is full instead
    operator          preparing, committing: the push is killed. Else a second push of the table
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

# The exit code of the push. Where the store is away, runs that are not here yet may still come, or
# not. A push that is killed goes on without its command.
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
# Between two reads at each node: all that nodes say to each other goes through this process.
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

    def two_are_ready(says):
        rollout = table_of(says, "t")["rollout"]
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
            # Or a node would serve, and say so, before it is struck.
            gate.wait_opened()

    def wait():
        gate.wait_reached()
        head = re.search(rb'"revision":(\d+)', made.store.read("cluster/head"))
        assert int(head[1]) > made.heard()["revision"], "the coordinator knows of it"

    with held(made, watch, gate):
        yield wait


def confirming(made, table, hit, other):
    return stalled(made, table, hit, "committed")


def reverting(made, table, hit, other):
    return stalled(made, table, other, "reverting")


MOMENTS = {one.__name__: one for one in (preparing, verifying, committing, confirming, reverting)}
# As the coordinator tells it then. That of a commit that it does not know of yet is the one before.
PHASES = {
    "preparing": "preparing",
    "verifying": "preparing",
    "committing": "preparing",
    "confirming": "committed",
    "reverting": "reverting",
}


def strike(made, table, fault, moment, hit, push):
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
    heard = made.heard()
    return heard is None or heard["coordinator"] is None


def after_the_strike(made, fault, hit):
    """What is over before the push is."""
    if fault == "coordinator dead":
        hit.start().comes_up()
    elif fault == "store away":
        wait_for(lambda: has_no_coordinator(made), made.heard)
        made.is_away = False


# The worst of each fault, so that each moment is met; the simulator has all (sim_tests/matrix.rs).
EACH_TIME = {
    ("store away", "preparing"),
    ("coordinator dead", "committing"),
    ("node dead", "confirming"),
    ("node cut off", "reverting"),
}
PARAMETERS = [
    pytest.param(*case, marks=[] if case in EACH_TIME else [pytest.mark.nightly]) for case in CASES
]


@pytest.mark.parametrize(("fault", "moment"), PARAMETERS)
def test_a_fault_at_a_moment_of_a_push(tables, fault, moment):
    table = tables.take()
    made, before = table.made, table.version
    coordinator, *others = made.roles()
    hit, other = (coordinator, others[0]) if fault == "coordinator dead" else others
    with readers_of(made, before) as readers:
        new, serving = the_case(table, fault, moment, hit, other)
        for reader in readers.values():
            reader.wait_for(table.version)
    for node, reader in readers.items():
        reader.end()
        assert reader.mixed == []
        # Who is dead answers nobody, and who is cut off does not reach what it does not hold.
        if node is not hit or fault not in ("node dead", "node cut off", "coordinator dead"):
            assert reader.failed == []
            steps = [new] if serving == new else []
            seen = [[before, *steps, table.version]]
            if moment == "reverting":
                # What is taken back may have been read.
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


def the_case(table, fault, moment, hit, other):
    """Pushes, strikes and heals; gives the version that was struck, and what served then."""
    made, before = table.made, table.version
    with MOMENTS[moment](made, table, hit, other) as wait:
        push = table.begin()
        wait()
        # What the coordinator says: it may not know the newest revision.
        rollout = table_of(made.wait_for(lambda says: True), "t")["rollout"]
        assert rollout["phase"] == PHASES[moment]
        new = rollout["to"]
        strike(made, table, fault, moment, hit, push)
    after_the_strike(made, fault, hit)
    done = made.store.finish(push)
    if done.code == SIGKILL:
        made.wait_for(lambda says: phase_of(says) is None)
    serving = what_the_code_says(made, table, done, CODES[CASES[fault, moment]], hit, before, new)
    made.heal()
    for node in made.nodes:
        make_room(node.disk)
        if not node.alive():
            node.start().comes_up()
    made.wait_up()
    status = made.table("t")
    assert (status["version"], status["rollout"]) == (serving, None)
    for node in made.nodes:
        wait_for(lambda node=node: versions_at(node) == {serving}, node.name)
    says = table.push()
    table.version = says["version"]
    assert says["rollout"]["excluded"] == []
    for node in made.nodes:
        assert versions_at(node) == {table.version}
    return new, serving


def what_the_code_says(made, table, done, expected, hit, before, new):
    """Asserts that the exit code is true of what serves now; gives the version that has to."""
    assert done.code in expected, (done.code, done.err)
    says = done.out.splitlines()
    if done.code == 6:
        assert json.loads(says[-1])["rollout"]["excluded"] == [hit.name]
    elif done.code == 0:
        assert json.loads(says[-1])["rollout"]["excluded"] == []
    serving = before if done.code == 5 else new
    for node in made.alive():
        # One that is cut off may answer from the version before, or the one that was taken back.
        if node.name not in made.cut:
            assert versions_at(node) == {serving}, node.name
    return serving
