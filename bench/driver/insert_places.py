"""What the parts of `make bench-insert` share: nodes with a bounded share of the processor and of the network; a table
with rows in it; sources whose keys lie as they do in the paper's experiments."""

from pathlib import Path

import bounded
from common import DATA

TABLE = "t"
#: What a key and a value take, as in the paper.
KEY_BYTES, VALUE_BYTES = 16, 1000
#: Keys are numbers below this, with leading zeros.
KEYS = 10**12
#: Where the table's partitions end, as parts of its keys: they are unequal.
BOUNDS = (0.04, 0.10, 0.25, 0.30, 0.45, 0.52, 0.70, 0.78, 0.90)
#: Equal parts of the keys of which a Zipf distribution picks.
SUBRANGES = 100
#: A node's part of a core, and what it may bring from elsewhere, bytes a second.
CORE, PULL_RATE = 0.25, "auto:12M"


def key(number) -> str:
    return f"{int(number):0{KEY_BYTES}}"


def boundaries() -> list:
    return [word for bound in BOUNDS for word in ("--boundary", key(bound * KEYS))]


def bounded_cluster(count: int, core: float = CORE, pull_rate: str = PULL_RATE):
    """Nodes as those of the paper's experiments."""
    return bounded.bounded_cluster(count, core, pull_rate)


def drawn(kind: str, count: int, seed: int):
    """So many different keys, in random order, as whole numbers: `uniform` over all keys; `partition` within the third of the table's
    partitions; `tenth` within a tenth of the keys, over borders of partitions; `zipf` by SUBRANGES that a Zipf distribution with
    parameter 1 picks; `append` behind all others."""
    import numpy

    chance = numpy.random.default_rng(seed)

    def picked(wanted: int):
        if kind == "zipf":
            shares = 1 / numpy.arange(1, SUBRANGES + 1)
            # The hot parts lie apart from each other, the same ones for each seed.
            parts = numpy.random.default_rng(1).permutation(SUBRANGES)
            part = chance.choice(parts, wanted, p=shares / shares.sum())
            return ((part + chance.random(wanted)) * (KEYS / SUBRANGES)).astype(numpy.int64)
        low, high = {"uniform": (0, 1), "partition": BOUNDS[1:3], "tenth": (0.47, 0.57), "append": (0.98, 1)}[kind]
        return chance.integers(int(low * KEYS), int(high * KEYS), wanted)

    keys = numpy.unique(picked(int(count * 1.05) + 100))
    return chance.permutation(keys)[:count]


def source(kind: str, count: int, seed: int, prefix: str = "") -> Path:
    """A Parquet file of such keys, behind a prefix, and values that do not compress. It is kept."""
    import numpy
    import pyarrow
    import pyarrow.parquet

    path = DATA / f"insert-{kind}-{count}-{seed}{'-prefixed' if prefix else ''}.parquet"
    if path.exists():
        return path
    DATA.mkdir(exist_ok=True)
    numbers = drawn(kind, count, seed)
    keys = numpy.char.add(prefix, numpy.char.zfill(numbers.astype(str), KEY_BYTES))
    chance = numpy.random.default_rng(seed + 1)
    values = chance.integers(33, 127, (count, VALUE_BYTES), numpy.uint8).tobytes()
    offsets = numpy.arange(0, (count + 1) * VALUE_BYTES, VALUE_BYTES, dtype=numpy.int32)
    column = pyarrow.Array.from_buffers(pyarrow.string(), count, [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(values)])
    table = pyarrow.table({"k": pyarrow.array(keys), "v": column})
    unfinished = path.with_suffix(".unfinished")
    pyarrow.parquet.write_table(table, unfinished, compression="none", use_dictionary=False, row_group_size=20_000)
    unfinished.rename(path)
    return path


def keys_file(count: int, seed: int, prefix: str = "") -> Path:
    """Some of the keys of such a source with keys that lie evenly, a line each."""
    path = DATA / f"insert-keys-{count}-{seed}{'-prefixed' if prefix else ''}.txt"
    if not path.exists():
        path.write_text("".join(f"{prefix}{key(number)}\n" for number in drawn("uniform", count, seed)[:20_000]))
    return path
