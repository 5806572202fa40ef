"""Puts through the client (redis-py), by a process of its own or by the tasks of Spark: a time long, not a number."""

import itertools
import json
import sys
import time

import packets
import redis


def put(batches, port: int, at_once: int, seconds: float, start_at: float = 0) -> dict:
    """Puts the rows of Arrow batches until the time is over: one command a round trip, or pipelines of `at_once`.
    Times are those of the machine's monotonic clock, the same for all processes. Processes that put beside each other
    begin at one time, `start_at`."""
    client = redis.Redis(port=port)
    client.ping()
    batches = iter(batches)
    batches = itertools.chain(list(itertools.islice(batches, 1)), batches)
    time.sleep(max(0.0, start_at - time.monotonic()))
    began = now = time.monotonic()
    done = 0
    kept = []
    for batch in batches:
        rows = batch.to_pydict()
        rows = list(zip(rows["time_us"], rows["packet"], rows["value"]))
        for start in range(0, len(rows), at_once):
            now = time.monotonic()
            if now - began >= seconds:
                break
            group = rows[start : start + at_once]
            write(client, group)
            done += len(group)
            if start == 0:
                kept.append(group[0][1])
        else:
            continue
        break
    # What is left is read, for who gives it may be waiting for that.
    for _ in batches:
        pass
    return {"done": done, "began": began, "ended": now, "some": kept}


def write(client: redis.Redis, group: list) -> None:
    if len(group) == 1:
        [(time_us, packet, value)] = group
        client.set("packets:" + packets.table_key(time_us, packet), value)
        return
    pipeline = client.pipeline(transaction=False)
    for time_us, packet, value in group:
        pipeline.set("packets:" + packets.table_key(time_us, packet), value)
    pipeline.execute()


def main() -> None:
    import pyarrow.parquet

    file, port, at_once, seconds = sys.argv[1:5]
    batches = pyarrow.parquet.ParquetFile(file).iter_batches(10_000)
    print(json.dumps(put(batches, int(port), int(at_once), float(seconds))))


if __name__ == "__main__":
    main()
