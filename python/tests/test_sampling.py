"""Samplers: how many they keep, how evenly, and what a cut by them is worth."""

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
    """The values as batches of all sizes, empty ones among them."""
    first = 0
    while first < len(values):
        size = chance.choice([0, 1, 2, chance.randrange(most)])
        yield pa.record_batch({"n": pa.array(values[first : first + size], pa.int64())})
        first += size


def kept(sampler, values, chance, limit, part=0, encode=lambda batch: batch, seed=SEED):
    choose = sampling.chooser(sampler, part, seed, limit)
    held, rows = sampling.sample(batches(values, chance), choose, encode)
    return ([] if held is None else held["n"].to_pylist()), rows


@pytest.mark.parametrize("sampler", ["interval", "random"])
def test_a_part_of_any_length_keeps_at_most_the_limit_and_all_rows_are_counted(sampler, chance):
    for length in [0, 1, 2, 99, 100, 101, 199, 200, 201, 5000, chance.randrange(20_000)]:
        held, rows = kept(sampler, range(length), chance, limit=100)
        assert rows == length
        assert held == sorted(set(held)) and set(held) <= set(range(length))
        assert len(held) == length if length <= 100 else 50 <= len(held) <= 100


def test_an_interval_is_even_however_the_rows_come(chance):
    for length in [1000, 1 + chance.randrange(30_000)]:
        held, _ = kept("interval", range(length), chance, limit=128)
        step = 1 << (-(-length // 128) - 1).bit_length()
        assert length / step - 1 <= len(held) <= length / step + 1
        intervals = [row // step for row in held]
        assert intervals == list(range(len(held)))


@pytest.mark.parametrize("sampler", ["interval", "random"])
def test_rows_that_come_in_a_rhythm_are_not_missed(sampler, chance):
    for period in (2, 8, 10):
        found = []
        for draw in range(100):
            held, _ = kept(sampler, range(20_000), chance, 256, seed=draw)
            found += [row % period == 0 for row in held]
        # 15,600 rows at least: 15% are six deviations of a tenth of them.
        assert 0.85 < sum(found) / len(found) * period < 1.15


def test_an_interval_draws_each_row_alike():
    """Also around the batch in which intervals were doubled."""
    counts = [0] * 40
    for draw in range(2000):
        held, _ = kept("interval", range(40), random.Random(draw), 8, seed=draw)
        for row in held:
            counts[row] += 1
    # One of eight: 250 each, with a deviation of 15.
    assert all(175 < count < 325 for count in counts), counts


def test_random_rows_are_drawn_from_everywhere_alike():
    """Each tenth of the rows has its share, over many draws; batches change nothing about it."""
    counts, draws, limit = [0] * 10, 200, 50
    for draw in range(draws):
        held, _ = kept("random", range(3000), random.Random(draw), limit, seed=draw)
        assert len(held) == limit
        for row in held:
            counts[row // 300] += 1
    # 1,000 each are expected, with a deviation of 30.
    assert all(850 < count < 1150 for count in counts), counts


def test_the_same_seed_draws_the_same_rows_and_another_others(chance):
    # The batches of one part come alike when a task is tried again.
    def draw(seed, part=0):
        return kept("random", range(5000), random.Random(1), 64, part, seed=seed)[0]

    assert draw(1) == draw(1)
    assert draw(1) != draw(2) and draw(1) != draw(1, part=1)


def test_split_reads_the_first_rows_and_no_more(chance):
    read = []

    def watched():
        for batch in batches(range(10_000), chance, most=50):
            read.append(batch.num_rows)
            yield batch

    choose = sampling.chooser("split", 0, limit=100)
    held, _ = sampling.sample(watched(), choose, lambda batch: batch)
    assert held["n"].to_pylist() == list(range(100))
    assert sum(read) < 200
    assert kept("split", range(30), chance, limit=100) == (list(range(30)), 30)
    assert kept("split", range(30), chance, limit=100, part=65) == ([], 0)


def test_rows_that_are_left_out_are_no_samples(chance):
    def even_ones(batch):
        return batch.filter(pa.array([n % 2 == 0 for n in batch["n"].to_pylist()], pa.bool_()))

    for sampler in ("random", "split"):
        held, _ = kept(sampler, range(6000), chance, 200, encode=even_ones)
        assert 90 <= len(held) <= 200 and all(n % 2 == 0 for n in held)


@pytest.mark.parametrize("sampler", sampling.SAMPLERS)
def test_many_parts_do_not_make_many_samples(sampler, chance):
    """What the driver gets grows with the logarithm of the number of parts."""
    totals = []
    for parts in (64, 128, 256, 512):
        held = sum(len(kept(sampler, range(300), chance, 256, p)[0]) for p in range(parts))
        totals.append(held)
    steps = [b - a for a, b in zip(totals, totals[1:], strict=False)]
    assert totals[0] <= 64 * 256
    assert max(steps) <= 32 * 256, totals


def skewed(chance, rows):
    """Keys that crowd at the low end, each its own."""
    return [int(chance.random() ** 6 * 1e15) for _ in range(rows)]


@pytest.mark.parametrize(
    ("sampler", "order", "bound"),
    [
        ("interval", "shuffled", 1.25),
        ("interval", "sorted", 1.25),
        ("random", "shuffled", 1.25),
        ("random", "sorted", 1.25),
        ("split", "shuffled", 1.25),
    ],
)
def test_partitions_cut_by_weighed_samples_are_balanced(sampler, order, bound, chance):
    """Parts of quite different lengths and skewed keys, cut into 8: greatest against mean."""
    rows = skewed(chance, 60_000)
    if order == "sorted":
        rows.sort()
    cuts = sorted(chance.sample(range(len(rows)), 79))
    if sampler == "split":
        # It takes parts to be of one length.
        cuts = range(750, len(rows), 750)
    ends = [*cuts, len(rows)]
    samples = []
    for part, (first, last) in enumerate(zip([0, *cuts], ends, strict=True)):
        held, counted = kept(sampler, rows[first:last], chance, 256, part)
        weight = sampling.weigh(sampler, part, counted, len(held))
        samples += [(value, weight) for value in held]
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
