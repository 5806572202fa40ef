"""What a process of bench-python does with one contender, or while waits are measured; prints one JSON object.

python_cases.py read STORE PATH SOURCE SECONDS SEED
python_cases.py wait STORE PATH SOURCE KEYS ROUNDS SEED
"""

import gc
import json
import random
import statistics
import sys
import threading
import time
from pathlib import Path

import python_stores

BATCHES = (100, 10_000)
PAUSE_S = 0.001


def opened(name: str, path: str, source: str, seed: str):
    """The store, and keys that are there, in an order that the seed says; the first rows have to be right."""
    import pyarrow.parquet as pq

    [kind] = [kind for kind in python_stores.STORES if kind.name == name]
    store = kind(Path(path))
    first = pq.read_table(source).slice(0, 1000).to_pylist()
    asked = [row["key"] for row in first]
    reader = reader_of(store)
    if reader.get_many(asked) != first or [reader.get(key) for key in asked] != first:
        sys.exit(f"{name} gives other rows than those of the source")
    keys = pq.read_table(source, columns=["key"])["key"].to_pylist()
    random.Random(int(seed)).shuffle(keys)
    # What the keys are takes no part in collecting.
    gc.collect()
    gc.freeze()
    return store, keys


def reader_of(store):
    """What one thread reads with."""
    return store.thread() if hasattr(store, "thread") else store


def pieces(keys: list, size: int) -> list:
    return [keys[start:start + size] for start in range(0, len(keys) - size + 1, size)]


def rate(store, threads: int, seconds: float, work) -> float:
    """What all threads together do in a second; `work(reader, number)` is an iterator of how much each step did."""
    done, barrier = [0.0] * threads, threading.Barrier(threads)

    def go(number: int) -> None:
        steps = work(reader_of(store), number)
        next(steps)
        barrier.wait()
        start, count = time.perf_counter(), 0
        for step in steps:
            count += step
            if (now := time.perf_counter()) - start >= seconds:
                break
        done[number] = count / (now - start)

    running = [threading.Thread(target=go, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return sum(done)


def gets(keys: list, threads: int):
    def work(reader, number: int):
        get = reader.get
        while True:
            for part in pieces(keys[number::threads], 100):
                for key in part:
                    get(key)
                yield 100

    return work


def many(call: str, keys: list, size: int, threads: int, **more):
    def work(reader, number: int):
        get_many = getattr(reader, call)
        while True:
            for part in pieces(keys[number::threads], size):
                get_many(part, **more)
                yield size

    return work


def scans(rows: int, **more):
    def work(reader, number: int):
        # The cases before have read everything.
        yield 0
        while True:
            found = scanned(reader, **more)
            assert found.num_rows == rows, found.num_rows
            yield rows

    return work


def scanned(reader, **more):
    """All rows as a table of Arrow; some columns are for who can leave the others out."""
    return reader.table.scan(**more).to_arrow() if more else reader.scan()


def cases(store, keys: list) -> dict:
    """Each case by its name, as work for so many threads."""
    found = {"get": lambda threads: gets(keys, threads), "scan": lambda threads: scans(len(keys))}
    for size in BATCHES:
        found[f"get_many {size}"] = lambda threads, size=size: many("get_many", keys, size, threads)
    table = getattr(store, "table", None)
    if hasattr(table, "get_many_arrow"):
        # Not a method of the contenders: it has no like in the others.
        store.get_many_arrow = table.get_many_arrow
        for size in BATCHES:
            found[f"get_many_arrow {size}"] = lambda threads, size=size: many("get_many_arrow", keys, size, threads)
            found[f"get_many_arrow {size}, 2 columns"] = lambda threads, size=size: many(
                "get_many_arrow", keys, size, threads, columns=["price", "count"]
            )
        found["scan, 2 columns"] = lambda threads: scans(len(keys), columns=["price", "count"])
    return found


def read(name: str, path: str, source: str, seconds: str, seed: str) -> dict:
    store, keys = opened(name, path, source, seed)
    return {
        case: {str(threads): rate(store, threads, float(seconds), work(threads)) for threads in (1, 2)}
        for case, work in cases(store, keys).items()
    }


class Sleeper(threading.Thread):
    """Sleeps a millisecond again and again, and notes how late it woke, in ms; with and without what it then waited for a processor."""

    def __init__(self):
        super().__init__()
        self.late, self.late_in_all, self.epoch, self.ended = [], [], 0, False

    def run(self) -> None:
        with open("/proc/thread-self/schedstat", "rb", buffering=0) as statistics_file:
            while not self.ended:
                self._sample(statistics_file)

    def _sample(self, statistics_file) -> None:
        epoch, queued = self.epoch, queued_ms(statistics_file)
        start = time.perf_counter()
        time.sleep(PAUSE_S)
        late = (time.perf_counter() - start - PAUSE_S) * 1e3
        if epoch % 2 and epoch == self.epoch:
            self.late_in_all.append(late)
            self.late.append(max(late - queued_ms(statistics_file) + queued, 0))

    def look(self) -> None:
        """What follows counts, or no longer does: a sample that is on its way when this is called is dropped."""
        self.epoch += 1


def queued_ms(statistics_file) -> float:
    """How long this thread has waited for a processor so far."""
    statistics_file.seek(0)
    return int(statistics_file.read().split()[1]) / 1e6


def wait(name: str, path: str, source: str, count: str, rounds: str, seed: str) -> dict:
    """How late another thread wakes while this one asks for many keys; nothing is asked for where the store is `none`."""
    idle = name == "none"
    store, keys = opened("forebay" if idle else name, path, source, seed)
    reader, keys = reader_of(store), keys[:int(count)]
    sleeper, took = Sleeper(), []
    sleeper.start()
    for _ in range(int(rounds)):
        sleeper.look()
        # The sample in which the call begins has to count, too.
        time.sleep(5 * PAUSE_S)
        start = time.perf_counter()
        found = time.sleep(0.2) if idle else reader.get_many(keys)
        took.append(time.perf_counter() - start)
        time.sleep(5 * PAUSE_S)
        sleeper.look()
        del found
    sleeper.ended = True
    sleeper.join()
    late = sorted(sleeper.late)
    return {
        "samples": len(late), "p50_ms": statistics.median(late), "p99_ms": late[int(len(late) * 0.99)], "max_ms": late[-1],
        "max_in_all_ms": max(sleeper.late_in_all), "call_ms": statistics.median(took) * 1e3,
    }


if __name__ == "__main__":
    if sys.argv[1] == "wait-uncollected":
        gc.disable()
    print(json.dumps({"read": read, "wait": wait, "wait-uncollected": wait}[sys.argv[1]](*sys.argv[2:])))
