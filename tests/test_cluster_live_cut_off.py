"""Nodes are cut off from the other nodes, but not from their clients. Redis Cluster clients leave
them."""

import json
import threading
import time
from functools import partial
from itertools import combinations

import pyarrow as pa
import pytest
import redis
from data import write
from harness import WAIT_S, wait_for
from histories import FAILED, is_refused
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.retry import Retry

CLIENT_LIMIT_S = 2
# How long an isolated node may take for an answer.
AT_ONCE_S = 1
ROWS = 50


@pytest.fixture
def made(lossy_cluster):
    return lossy_cluster(3)


class Writer(threading.Thread):
    """Writes keys of one partition with RedisCluster, each once. `rows` holds begin, end and
    error."""

    def __init__(self, made, tag):
        super().__init__(daemon=True)
        self.tag, self.rows, self.is_over = tag, [], False
        self.client = redis.RedisCluster(
            startup_nodes=[ClusterNode("127.0.0.1", node.port) for node in made.nodes],
            retry=Retry(NoBackoff(), 0),
            socket_timeout=CLIENT_LIMIT_S,
            socket_connect_timeout=CLIENT_LIMIT_S,
        )
        self.start()

    def run(self):
        while not self.is_over:
            time.sleep(0.02)
            key, begin, error = f"t:{{{self.tag}}}{len(self.rows)}", time.monotonic(), None
            try:
                self.client.set(key, key)
            except FAILED as failed:
                error = failed
            self.rows.append((begin, time.monotonic(), error))

    def writes(self, since):
        begin, _, error = self.rows[-1] if self.rows else (0, 0, None)
        return begin > since and error is None

    def pause(self, since):
        """The longest time without an acknowledged write."""
        ends = [end for _, end, error in self.rows if error is None]
        ends = [max((end for end in ends if end <= since), default=since)] + [
            end for end in ends if end > since
        ]
        return max(after - one for one, after in zip(ends, ends[1:], strict=False))

    def errors_since(self, since):
        return [str(error)[:80] for begin, _, error in self.rows if begin > since and error]

    def end(self):
        self.is_over = True
        self.join(WAIT_S)
        self.client.close()
        return self


def refused_at_once(client, *words, may_redirect=False):
    """Whether a node answers CLUSTERDOWN at once, or a redirect if it may."""
    begin = time.monotonic()
    try:
        client.execute_command(*words)
    except redis.exceptions.MovedError:
        return may_redirect and time.monotonic() - begin < AT_ONCE_S
    except redis.ResponseError as error:
        is_down = type(error).__name__ == "ClusterDownError" or "CLUSTERDOWN" in str(error)
        return is_down and time.monotonic() - begin < AT_ONCE_S
    except redis.RedisError:
        pass
    return False


def state(node):
    with node.client() as client:
        return client.cluster("info")["cluster_state"]


def led_by(made, node):
    """The partitions that a node leads, once it leads some."""
    found = []

    def leads():
        leaders = made.leaders(made.nodes[0])
        found[:] = [place for place, leader in enumerate(leaders) if leader is node]
        return bool(found)

    wait_for(leads, lambda: f"{node.name} leads")
    return found


def held_by(made, *faulty):
    """For each partition, those of these nodes that have a replica."""
    ports = {str(node.port): node for node in faulty}
    rows = [[str(one).rsplit(":", 1)[-1] for one in row[2]] for row in made.map(faulty[0])]
    return [[ports[port] for port in row if port in ports] for row in rows]


def resume_without(made, *faulty):
    """Cuts nodes off while writers use partitions that these nodes lead, and of which the others
    have a majority. Returns the writers once all write again."""
    made.wait_whole()
    held = held_by(made, *faulty)
    places = {place for node in faulty for place in led_by(made, node)}
    writers = [Writer(made, made.tags[place]) for place in places if len(held[place]) == 1]
    assert writers
    try:
        begun = time.monotonic()
        wait_for(lambda: all(one.writes(begun) for one in writers), "writes")
        since = time.monotonic()
        made.cut_off(*faulty)
        # The isolated leader may still hold its lease for a while.
        settled = since + 3
        wait_for(
            lambda: all(one.writes(settled) for one in writers),
            lambda: [one.errors_since(since) for one in writers],
        )
    finally:
        ended = [one.end() for one in writers]
    seen = [f"{one.pause(since):.2f} s {one.errors_since(since)}" for one in ended]
    print([node.name for node in faulty], seen)
    return ended


@pytest.mark.parametrize(
    "is_coordinator", [True, pytest.param(False, marks=pytest.mark.nightly)]
)
def test_clients_leave_an_isolated_node(made, is_coordinator):
    first = made.coordinator()
    faulty = first if is_coordinator else made.others(first)[0]
    place = led_by(made, faulty)[0]
    writers = resume_without(made, faulty)
    key = f"t:{{{made.tags[place]}}}refused"
    with faulty.client(faulty.port + 4) as at_class, faulty.client() as ordinary:
        for client in (at_class, ordinary):
            words = [("SET", key, 1), ("GET", key)]
            words += [("CLUSTER", word) for word in ("SLOTS", "SHARDS", "NODES")]
            for one in words:
                wait_for(lambda c=client, one=one: refused_at_once(c, *one), f"{one} is refused")
        assert state(faulty) == "fail"
        # The node still answers which classes it heads and its own id.
        assert at_class.execute_command("CLUSTER", "MYID")
    for node in made.others(faulty):
        assert node.slots()
    made.faults.heal()
    made.wait_up()
    made.wait_whole()
    wait_for(lambda: state(faulty) == "ok" and faulty.slots(), "the node is back")
    with faulty.through_gateway() as client:
        assert client.get(key) is None
        for one in writers:
            for number, (_, _, error) in enumerate(one.rows):
                name = f"t:{{{one.tag}}}{number}"
                if error is None:
                    assert client.get(name) == name, "lost"
                elif is_refused(str(error), error):
                    assert client.get(name) is None, "appeared"


def leads_without_other(made, with_coordinator, pair):
    """Whether one of the pair leads a partition without the other's replica, and whether one is the
    coordinator."""
    leaders, held = made.leaders(made.nodes[0]), held_by(made, *pair)
    of_one = [leader in pair and len(held[place]) == 1 for place, leader in enumerate(leaders)]
    return (made.coordinator() in pair) == with_coordinator and any(of_one)


def coordinators(nodes):
    """The coordinator according to each node."""
    return [json.loads(node.ask("/v1/cluster")[1]).get("coordinator") for node in nodes]


def check_new_client(made, faulty, tag):
    """Checks that a node of the majority coordinates, and that new clients can write."""
    others = made.others(*faulty)
    names = {node.name for node in others}
    wait_for(lambda: names.issuperset(coordinators(others)), lambda: f"{coordinators(others)}")

    def can_write():
        try:
            with others[0].cluster_client(socket_timeout=CLIENT_LIMIT_S) as client:
                return client.set(f"t:{{{tag}}}found", 1)
        except FAILED:
            return False

    wait_for(can_write, "a new client writes")


@pytest.mark.parametrize(
    "with_coordinator", [True, pytest.param(False, marks=pytest.mark.nightly)]
)
def test_clients_leave_two_nodes_that_are_isolated_together(lossy_cluster, with_coordinator):
    made = lossy_cluster(5)
    made.wait_whole()
    fits = partial(leads_without_other, made, with_coordinator)
    faulty = next(filter(fits, combinations(made.nodes, 2)))
    # This must be read now: later, the map omits unavailable nodes.
    held = held_by(made, *faulty)
    ended = resume_without(made, *faulty)
    check_new_client(made, faulty, ended[0].tag)
    for place, holders in enumerate(held):
        key = f"t:{{{made.tags[place]}}}at-the-cut-off"
        for node in faulty:
            with node.client() as client:
                if len(holders) == 2:
                    # These nodes have two of the three replicas, so one of them leads.
                    wait_for(lambda client=client, key=key: is_taken(client, key), "a leader")
                else:
                    # A node without a replica may redirect to the other one, which has a replica
                    # and refuses.
                    for words in [(client, "SET", key, 1), (client, "GET", key)]:

                        def refused(words=words, may_redirect=node not in holders):
                            return refused_at_once(*words, may_redirect=may_redirect)

                        wait_for(refused, "refused")
    made.faults.heal()
    made.wait_up()
    made.wait_whole()
    for node in faulty:
        wait_for(lambda node=node: state(node) == "ok" and node.slots(), "the node is back")
    with faulty[0].through_gateway() as client:
        for place, holders in enumerate(held):
            key = f"t:{{{made.tags[place]}}}at-the-cut-off"
            assert client.get(key) == ("1" if len(holders) == 2 else None)
        for one in ended:
            for number, (_, _, error) in enumerate(one.rows):
                if error is None:
                    assert client.get(f"t:{{{one.tag}}}{number}"), "lost"


def is_taken(client, key):
    try:
        return client.set(key, 1)
    except redis.exceptions.MovedError:
        return True
    except redis.RedisError:
        return False


def test_an_isolated_node_with_batch_tables_names_the_other_nodes_to_clients(made, tmp_path):
    rows = pa.table({"id": range(ROWS), "row": [f"row {i}" for i in range(ROWS)]})
    path = write(rows, tmp_path / "b.parquet")
    made.store.run("push", "b", path, "--key", "{id}", "--replicas", "3")
    faulty = made.coordinator()
    resume_without(made, faulty)
    wait_for(lambda: state(faulty) == "fail", "the node reports fail")
    ports = {port: node for node in made.nodes for port in range(node.port, node.port + 9)}

    def heads_all():
        return all(ports[row[0]] is faulty for row in faulty.slots())

    wait_for(heads_all, lambda: f"the node heads all classes: {faulty.slots()}")
    assert {ports[port] for row in faulty.slots() for port in row} == set(made.nodes)
    with faulty.cluster_client(socket_timeout=2, retry=Retry(NoBackoff(), 0)) as client:
        seen = client.mget_nonatomic([f"b:{i}" for i in range(ROWS)])
        assert [json.loads(row)["row"] for row in seen] == rows["row"].to_pylist()

        # The client started with this node alone, and discovers the others.
        def writes():
            try:
                return client.set(f"t:{{{made.tags[0]}}}found", 1)
            except FAILED:
                return False

        wait_for(writes, "a write")
