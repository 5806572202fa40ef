"""Which rows of a source stand for all of them when an ordered table is split into partitions.

Every task samples one part of the source, and keeps of each chosen row its key and its size only.
Three ways (the paper's, docs/papers/parallel-bulk-insertion.md):

- `interval`: of every k rows one, drawn at random, so that rows which come in some rhythm do no
  harm.
- `random`: each of the rows by itself, with a chance of one in k.
- `split`: the first rows of some of the parts. Nothing else is read.

Neither the number of parts nor their lengths are known to a task. So k grows with the number of the
row within its part: it is 1 for the first rows, and doubles whenever that number does. A part has
so many samples with each doubling of its length, and a sample weighs k rows. The first 64 parts
have the whole number of samples, the next 64 half of it, the next 128 a quarter, and so on.

Whether a row is chosen follows from the numbers of row and part and the seed alone. So an engine
may do it where its rows are: `chosen` is for rows that are here, `in_sql` for Spark's.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from typing import Any, Literal

Sampler = Literal["interval", "random", "split"]
SAMPLERS: tuple[Sampler, ...] = ("interval", "random", "split")

PARTS_WITH_ALL = 64
"""So many parts have the whole number of samples."""
WHOLE_ROWS = 512
"""That number, for each doubling of a part's length. A power of two, as the next one."""
LEAST_ROWS = 8
"""The same of any part."""
SPLIT_ROWS = 2048
"""The first rows of a part that `split` takes."""


def _share(part: int) -> int:
    """1 for the first parts, doubling with every doubling of their number."""
    return 1 << (part // PARTS_WITH_ALL).bit_length()


def _rows_each(part: int) -> int:
    return max(WHOLE_ROWS // _share(part), LEAST_ROWS)


def chosen(
    sampler: Sampler, part: int, seed: int, batches: Iterable[Any]
) -> Iterator[tuple[Any, list[int]]]:
    """Of each batch of a part the rows that are chosen, and how many rows each stands for."""
    pa: Any = importlib.import_module("pyarrow")
    first = 0
    for batch in batches:
        if sampler == "split":
            taken = batch.slice(0, _left(part, first))
            if taken.num_rows == 0:
                return
            yield taken, [_share(part)] * taken.num_rows
        else:
            places, weights = _places(sampler, part, seed, first, batch.num_rows)
            if len(places) > 0:
                yield batch.take(pa.array(places)), weights.tolist()
        first += batch.num_rows


def _left(part: int, rows: int) -> int:
    """Whole parts are left out rather than reading few rows of each."""
    return max(SPLIT_ROWS - rows, 0) if part % _share(part) == 0 else 0


def _places(sampler: Sampler, part: int, seed: int, first: int, rows: int) -> tuple[Any, Any]:
    """The places of those chosen among the rows from number `first` on, and their weights."""
    numpy: Any = importlib.import_module("numpy")
    number = numpy.arange(first, first + rows, dtype=numpy.int64)
    # The number of binary digits of what is not too large for a float is that of the float.
    _, digits = numpy.frexp((number // _rows_each(part)).astype(numpy.float64))
    weight = numpy.left_shift(1, numpy.maximum(digits - 1, 0).astype(numpy.int64))
    below = weight - 1
    within = number & below
    drawn_by, wanted = (number - within, within) if sampler == "interval" else (number, 0)
    stream = numpy.random.SeedSequence([seed % 2**64, part]).generate_state(1, numpy.uint64)
    drawn = _mixed(numpy, drawn_by.astype(numpy.uint64) ^ stream).astype(numpy.int64)
    places = numpy.flatnonzero((drawn & below) == wanted)
    return places, weight[places]


def _mixed(numpy: Any, bits: Any) -> Any:
    """The finalizer of SplitMix64."""
    bits = (bits ^ (bits >> numpy.uint64(30))) * numpy.uint64(0xBF58_476D_1CE4_E5B9)
    bits = (bits ^ (bits >> numpy.uint64(27))) * numpy.uint64(0x94D0_49BB_1331_11EB)
    return bits ^ (bits >> numpy.uint64(31))


def in_sql(sampler: Sampler, seed: int, number: str, weight: str) -> tuple[str, str]:
    """The same as expressions of Spark's SQL: the weight of a row of that number, and whether it is
    chosen, by the columns of these names."""
    halvings = (WHOLE_ROWS // LEAST_ROWS).bit_length() - 1
    cases = [
        f"WHEN spark_partition_id() < {PARTS_WITH_ALL << halved} THEN {WHOLE_ROWS >> halved}"
        for halved in range(halvings)
    ]
    each = f"CASE {' '.join(cases)} ELSE {LEAST_ROWS} END"
    # Half a row more keeps a logarithm of a power of two from falling below the whole number.
    doublings = f"greatest(0, floor(log2({number} DIV {each} + 0.5D)))"
    within = f"({number} & ({weight} - 1))"
    drawn_by, wanted = (f"{number} - {within}", within) if sampler == "interval" else (number, "0")
    drawn = f"xxhash64({drawn_by}, spark_partition_id(), {seed % 2**63}L)"
    return (
        f"shiftleft(1L, CAST({doublings} AS INT))",
        f"({drawn} & ({weight} - 1)) = {wanted}",
    )
