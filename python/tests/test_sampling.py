"""Samplers: how many rows they choose, how evenly, and how well their split points balance."""

import os
import random
from bisect import bisect_right

import pyarrow as pa
import pytest

from forebay import _sampling as sampling

SEED = int(os.environ.get("FOREBAY_TEST_SEED", random.randrange(1 << 32)))


@pytest.fixture(autouse=True)
def chance():
    print(f"FOREBAY_TEST_SEED={SEED}")
    return random.Random(SEED)


def batches(values, chance, most=700):
    """Yields the values as batches of all sizes."""
    first = 0
    while first < len(values):
        size = chance.choice([1, 2, 1 + chance.randrange(most)])
        yield pa.record_batch({"n": pa.array(values[first : first + size], pa.int64())})
        first += size


def taken(sampler, values, chance, part=0, seed=SEED, most=700):
    """Returns the chosen values with their weights."""
    found = []
    for batch, weights in sampling.chosen(sampler, part, seed, batches(values, chance, most)):
        found += zip(batch["n"].to_pylist(), weights, strict=True)
    return found


def weight_of(row, each):
    return 1 << max(0, (row // each).bit_length() - 1)


def test_an_interval_is_even_for_any_batches(chance):
    """The sampler takes one of every k rows, and k doubles as row numbers double."""
    for part, each in [(0, 512), (63, 512), (64, 256), (128, 128), (10_000, 8)]:
        for length in [0, 1, 511, 512, 1024, 5000, 1 + chance.randrange(100_000)]:
            found = taken("interval", range(length), chance, part)
            assert [weight for _, weight in found] == [weight_of(n, each) for n, _ in found]
            # Intervals follow one another without a gap; the last one may be incomplete.
            starts = [n - n % weight for n, weight in found]
            ends = [start + weight for start, (_, weight) in zip(starts, found, strict=True)]
            whole = [0, *ends]
            assert starts == whole[: len(starts)]
            assert abs(whole[-1] - length) <= weight_of(length, each)


@pytest.mark.parametrize("sampler", ["interval", "random"])
def test_periodic_rows_are_sampled_evenly(sampler, chance):
    for period in (2, 8, 10):
        in_time = total = 0
        for draw in range(60):
            for n, weight in taken(sampler, range(20_000), chance, 64, seed=draw, most=9000):
                total += weight
                in_time += weight * (n % period == 0)
        assert 0.9 < in_time / total * period < 1.1


@pytest.mark.parametrize("sampler", ["interval", "random"])
def test_each_row_is_drawn_as_often_as_its_weight(sampler):
    counts = [0] * 160
    for draw in range(2000):
        for n, _ in taken(sampler, range(160), random.Random(draw), 10_000, seed=draw):
            counts[n] += 1
    for n, count in enumerate(counts):
        wanted = 2000 / weight_of(n, 8)
        # Seven standard deviations.
        assert abs(count - wanted) <= 7 * (wanted * (1 - wanted / 2000)) ** 0.5, (n, count)


def test_random_rows_stand_for_all(chance):
    for length in (3000, 50_000):
        found = taken("random", range(length), chance)
        assert abs(sum(weight for _, weight in found) / length - 1) < 0.2


@pytest.mark.parametrize("sampler", ["interval", "random"])
def test_the_same_seed_draws_the_same_rows_from_any_batches(sampler):
    def draw(seed, part=0, cuts=1):
        return taken(sampler, range(5000), random.Random(cuts), part, seed=seed)

    assert draw(1) == draw(1, cuts=2) == draw(1, cuts=3)
    assert draw(-1) == draw(-1)
    assert draw(1) != draw(2) and draw(1) != draw(1, part=1)


def test_split_takes_the_first_rows_and_reads_no_more(chance):
    read = []

    def watched():
        for batch in batches(range(10_000), chance, most=50):
            read.append(batch.num_rows)
            yield batch

    found = [n for batch, _ in sampling.chosen("split", 0, 0, watched()) for n in batch["n"]]
    assert [n.as_py() for n in found] == list(range(sampling.SPLIT_ROWS))
    assert sum(read) < sampling.SPLIT_ROWS + 100
    assert taken("split", range(30), chance) == [(n, 1) for n in range(30)]
    assert taken("split", range(30), chance, part=64) == [(n, 2) for n in range(30)]
    assert taken("split", range(30), chance, part=65) == []


@pytest.mark.parametrize("sampler", sampling.SAMPLERS)
def test_many_parts_do_not_make_many_samples(sampler, chance):
    """The samples that the driver gets grow with the logarithm of the number of parts."""
    totals = []
    for parts in (64, 128, 256, 512):
        held = [len(taken(sampler, range(4000), chance, part, most=9000)) for part in range(parts)]
        totals.append(sum(held))
    steps = [b - a for a, b in zip(totals, totals[1:], strict=False)]
    # Each time the number of parts doubles, the weight of a sample doubles.
    assert totals[0] <= 64 * max(sampling.SPLIT_ROWS, 512 * 4)
    assert max(steps) <= totals[0], totals


def skewed(chance, rows):
    """Returns distinct keys that are dense at the low end."""
    return [int(chance.random() ** 6 * 1e15) for _ in range(rows)]


@pytest.mark.parametrize(
    ("sampler", "order", "bound"),
    [
        ("interval", "shuffled", 1.15),
        ("interval", "sorted", 1.15),
        ("random", "shuffled", 1.15),
        ("random", "sorted", 1.15),
        ("split", "shuffled", 1.25),
    ],
)
def test_partitions_split_by_weighted_samples_are_balanced(sampler, order, bound, chance):
    """Parts of different lengths with skewed keys are split into 8 balanced partitions."""
    rows = skewed(chance, 200_000)
    if order == "sorted":
        rows.sort()
    cuts = sorted(chance.sample(range(len(rows)), 79))
    if sampler == "split":
        # This sampler expects parts of one length.
        cuts = range(2500, len(rows), 2500)
    ends = [*cuts, len(rows)]
    samples = []
    for part, (first, last) in enumerate(zip([0, *cuts], ends, strict=True)):
        samples += taken(sampler, rows[first:last], chance, part)
    samples.sort()
    total, boundaries, at = sum(weight for _, weight in samples), [], 0.0
    for value, weight in samples:
        at += weight
        if at >= total * (len(boundaries) + 1) / 8 and len(boundaries) < 7:
            boundaries.append(value)
    sizes = [0] * 8
    for value in rows:
        sizes[bisect_right(boundaries, value)] += 1
    assert max(sizes) / (len(rows) / 8) < bound, sizes
