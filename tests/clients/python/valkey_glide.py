"""valkey-glide as a client of reading.py. Replicas: in turn, and the primary if there is none."""

import asyncio
from importlib.metadata import version

from glide import GlideClusterClient, GlideClusterClientConfiguration, NodeAddress, ReadFrom
from reading import PAUSE_S, Reading


async def run():
    reading = Reading("valkey-glide", version("valkey-glide"), splits=True)
    replicas = reading.variant == "replicas"
    configuration = GlideClusterClientConfiguration(
        [NodeAddress(*address) for address in reading.addresses],
        read_from=ReadFrom.PREFER_REPLICA if replicas else ReadFrom.PRIMARY,
    )
    client = await GlideClusterClient.create(configuration)
    while not reading.over.is_set():
        keys = reading.next_keys()
        try:
            one = len(keys) == 1
            values = [await client.get(keys[0])] if one else await client.mget(keys)
        except Exception as error:
            reading.failed(type(error).__name__, str(error))
        else:
            reading.answered(keys, values)
        await asyncio.sleep(PAUSE_S)
    reading.end()
    await client.close()


asyncio.run(run())
