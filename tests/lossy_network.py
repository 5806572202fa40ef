"""Clusters with a live table `t` whose nodes talk through relays, so that they can be cut off."""

import redis
from cluster import Cluster
from harness import Store
from redis.crc import key_slot
from relays import FrameRelay, Weather

TABLE = ["--mode", "live", "--replicas", "3", "--durability", "os", "--partitions", "6"]


class LossyCluster(Cluster):
    """`tags` has of each partition a hashtag whose keys are in it."""

    def __init__(self, directory, seed, count=3, args=(), **options):
        super().__init__(Store(directory / "store"), directory, count, **options)
        self.weather, self.relays = Weather(seed), []
        for node in self.nodes:
            self.relays.append(FrameRelay(self, node))
            node.args = ["--advertise-peer", self.relays[-1].address, *args]

    def start(self):
        super().start()
        self.make_table()
        return self

    def begin(self, seed):
        """Another test, with whole nodes and without a table."""
        self.weather.begin(seed)
        if not self.status()["tables"]:
            self.make_table()

    def make_table(self):
        self.store.run("create", "t", *TABLE)
        self.tags = [tag_within(*row[:2]) for row in self.map(self.nodes[0])]

    def map(self, node):
        with node.through_gateway(socket_timeout=2) as client:
            return client.execute_command("KV.MAP", "t")

    def leaders(self, node):
        """The node that leads each partition, in their order, as one node knows it."""
        ports = {str(one.port): one for one in self.nodes}
        return [ports.get(str(row[2][0]).rsplit(":", 1)[-1]) for row in self.map(node)]

    def others(self, *faulty):
        return [node for node in self.nodes if node not in faulty]

    def has_moved(self, faulty, places):
        """Whether others know that others lead these partitions."""
        try:
            seen = [self.leaders(node) for node in self.others(faulty)]
        except redis.RedisError:
            return False
        return all(led[place] not in (None, faulty) for led in seen for place in places)

    def cut_off(self, *faulty, ways=("from", "to")):
        """Nodes from all others, and not from each other."""
        others = [one.name for one in self.others(*faulty)]
        for node in faulty:
            self.weather.cut_off(node.name, others, ways)

    def tidy(self):
        self.weather.heal()
        super().tidy()

    def end(self):
        super().end()
        self.weather.heal()
        for relay in self.relays:
            relay.end()


def tag_within(first, last):
    """A hashtag in the midst of a range of slots."""
    middle, number = (first + (16383 if last is None else last)) // 2, 0
    while abs(key_slot(str(number).encode()) - middle) > 300:
        number += 1
    return str(number)
