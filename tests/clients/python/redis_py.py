"""redis-py as a client of reading.py. Replicas: round robin over the primary and the replicas."""

import redis
from reading import Reading, read
from redis.cluster import ClusterNode, LoadBalancingStrategy


def run():
    reading = Reading("redis-py", redis.__version__, splits=True)
    replicas = reading.variant == "replicas"
    client = redis.RedisCluster(
        startup_nodes=[ClusterNode(*address) for address in reading.addresses],
        load_balancing_strategy=LoadBalancingStrategy.ROUND_ROBIN if replicas else None,
    )

    def mget(keys):
        # redis-py's mget takes only keys of one slot.
        one_slot = len({key.split(":")[1] for key in keys}) == 1
        return client.mget(keys) if one_slot else client.mget_nonatomic(keys)

    read(reading, client.get, mget)


run()
