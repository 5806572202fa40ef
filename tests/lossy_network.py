"""Clusters with a live table `t`. Nodes talk through relays, so that tests can cut them off."""

import redis
from cluster import Cluster
from harness import Store
from redis.crc import key_slot
from relays import FrameRelay, NetworkFaults

TABLE = ["--mode", "live", "--replicas", "3", "--durability", "os", "--partitions", "6"]


class LossyCluster(Cluster):
    """`tags` holds, for each partition, a hashtag whose keys are in it."""

    def __init__(self, directory, seed, count=3, args=(), **options):
        super().__init__(Store(directory / "store"), directory, count, **options)
        self.faults, self.relays = NetworkFaults(seed), []
        for node in self.nodes:
            self.relays.append(FrameRelay(self, node))
            node.args = ["--advertise-peer", self.relays[-1].address, *args]

    def start(self):
        super().start()
        self.make_table()
        return self

    def begin(self, seed):
        """Prepares the next test: resets the network, and creates the table if there is none."""
        self.faults.begin(seed)
        if not self.status()["tables"]:
            self.make_table()

    def make_table(self):
        self.store.run("create", "t", *TABLE)
        self.tags = [tag_within(*row[:2]) for row in self.map(self.nodes[0])]

    def map(self, node):
        with node.through_gateway(socket_timeout=2) as client:
            return client.execute_command("KV.MAP", "t")

    def leaders(self, node):
        """The node that leads each partition, in their order, from one node's map."""
        ports = {str(one.port): one for one in self.nodes}
        return [ports.get(str(row[2][0]).rsplit(":", 1)[-1]) for row in self.map(node)]

    def others(self, *faulty):
        return [node for node in self.nodes if node not in faulty]

    def has_moved(self, faulty, places):
        """Whether the other nodes know that others lead these partitions."""
        try:
            seen = [self.leaders(node) for node in self.others(faulty)]
        except redis.RedisError:
            return False
        return all(leaders[place] not in (None, faulty) for leaders in seen for place in places)

    def cut_off(self, *faulty, directions=("from", "to")):
        """Cuts nodes off from all other nodes, but not from each other."""
        others = [one.name for one in self.others(*faulty)]
        for node in faulty:
            self.faults.cut_off(node.name, others, directions)

    def tidy(self):
        self.faults.heal()
        super().tidy()

    def end(self):
        super().end()
        self.faults.heal()
        for relay in self.relays:
            relay.end()


def tag_within(first, last):
    """A hashtag near the middle of a range of slots."""
    middle, number = (first + (16383 if last is None else last)) // 2, 0
    while abs(key_slot(str(number).encode()) - middle) > 300:
        number += 1
    return str(number)
