"""Shapes for sentences of like length: the best there are, few, and wide enough."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.buckets import bucket_widths, find_buckets, rows_per_bucket
from data.plan import TrainPlan

ONE_SIDE = st.lists(st.integers(1, 12), min_size=1, max_size=30).map(lambda x: np.array(x)[:, None])
TWO_SIDES = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=12).map(np.array)


def padded(lengths, widths) -> int:
    return int(np.asarray(widths)[find_buckets(lengths, widths)].sum())


@settings(max_examples=40)
@given(st.one_of(ONE_SIDE, TWO_SIDES), st.integers(1, 3))
def test_widths_are_the_best_there_are(lengths, count):
    """Against trying every chain of at most `count` widths."""
    widths = bucket_widths(lengths, count)
    assert len(widths) <= count and list(widths) == sorted(set(widths)) and widths[-1] == tuple(lengths.max(axis=0))
    points = list(itertools.product(*(sorted(set(side.tolist())) for side in lengths.T)))
    chains = itertools.chain.from_iterable(itertools.combinations(points, others) for others in range(count))
    chains = [(*chain, widths[-1]) for chain in chains]
    chains = [chain for chain in chains if all((np.diff(chain, axis=0) >= 0).ravel())]
    assert padded(lengths, widths) == min(padded(lengths, chain) for chain in chains)


@given(st.one_of(ONE_SIDE, TWO_SIDES), st.integers(1, 6))
def test_both_sides_fit_and_no_narrower_bucket_would_do(lengths, count):
    widths = bucket_widths(lengths, count)
    for length, bucket in zip(lengths, find_buckets(lengths, widths), strict=True):
        fits = [bool((length <= np.array(width)).all()) for width in widths]
        assert bucket == fits.index(True)
    assert (np.diff(widths, axis=0) >= 0).all()  # whatever fits a bucket fits the next


def test_what_is_too_long_goes_into_the_last_bucket():
    assert find_buckets(np.array([[9, 1], [1, 9], [2, 2], [3, 1]]), ((2, 2), (3, 3))).tolist() == [1, 1, 0, 1]


def test_many_lengths_are_quick_and_nearly_as_good():
    """200 × 200 pairs of lengths, of which quantiles are tried."""
    generator = np.random.default_rng(0)
    source = generator.gamma(3, 12, 20_000).astype(int).clip(1, 200)
    target = (source * generator.normal(1, 0.15, 20_000)).astype(int).clip(1, 200)
    lengths = np.stack([source, target], axis=1)
    waste = [1 - lengths.sum() / padded(lengths, bucket_widths(lengths, count)) for count in range(1, 7)]
    assert waste == sorted(waste, reverse=True) and waste[0] > 0.75 and waste[5] < 0.3


@pytest.mark.parametrize("count", [1, 6])
def test_one_length_is_one_width(count):
    assert bucket_widths(np.full((7, 2), 5), count) == ((5, 5),)


@given(TWO_SIDES, st.integers(1, 6), st.integers(1, 300), st.integers(1, 8))
def test_rows_keep_the_budget_and_are_multiples(lengths, count, budget, multiple):
    widths = bucket_widths(lengths, count)
    for (source, target), rows in zip(widths, rows_per_bucket(widths, 5, budget, multiple), strict=True):
        assert rows % multiple == 0
        assert rows == multiple or rows * max(source, target) <= budget < (rows + multiple) * max(source, target)
    assert set(rows_per_bucket(widths, 5, 0, multiple)) == {5}


def test_little_is_padded_and_wide_batches_are_rare():
    lengths = np.random.default_rng(0).geometric(0.1, 5000).clip(1, 60)[:, None]
    widths = bucket_widths(lengths, 4)
    for rows in ((16,) * 4, rows_per_bucket(widths, 0, 512, 4)):
        plan = TrainPlan(find_buckets(lengths, widths), rows, seed=0)
        drawn = [plan[index] for index in range(plan.batches_per_epoch)]
        tokens = sum(widths[bucket][0] * rows[bucket] for _, bucket in drawn)
        assert tokens < 1.02 * padded(lengths, widths) < 0.3 * 60 * len(lengths)
        assert len({bucket for _, bucket in drawn}) == 4
