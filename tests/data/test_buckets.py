"""Batches by length: nothing lost, few shapes, and a pure function of the position."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.buckets import WINDOW, BucketPlan, bucket_widths

LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=30).map(np.array)


def padded(lengths, widths) -> int:
    return int(np.asarray(widths)[np.searchsorted(widths, lengths)].sum())


@given(LENGTHS, st.integers(1, 4))
def test_widths_are_the_best_there_are(lengths, count):
    """Against trying every set of at most `count` widths."""
    widths = bucket_widths(lengths, count)
    assert len(widths) <= count and list(widths) == sorted(set(widths)) and widths[-1] == lengths.max()
    values = sorted(set(lengths.tolist()))
    candidates = itertools.chain.from_iterable(
        itertools.combinations(values[:-1], others) for others in range(min(count, len(values)))
    )
    assert padded(lengths, widths) == min(padded(lengths, (*others, values[-1])) for others in candidates)


@settings(max_examples=15)
@given(LENGTHS, st.integers(1, 5), st.integers(0, 3), st.integers(1, 3))
def test_every_example_once_an_epoch_and_every_row_fits(lengths, batch_size, seed, count):
    batch_size = min(batch_size, len(lengths))
    widths = bucket_widths(lengths, count)
    plan = BucketPlan(lengths, widths, batch_size, seed)
    # Windows and epochs meet again after this many batches.
    batches = WINDOW * len(lengths)
    seen = np.zeros(len(lengths), int)
    for index in range(batches):
        rows, width = plan[index]
        assert rows.shape == (batch_size,) and width in widths and lengths[rows].max() <= width
        seen += np.bincount(rows, minlength=len(lengths))
    assert (seen == WINDOW * batch_size).all()


def test_a_batch_depends_on_its_index_and_the_seed_alone():
    lengths = np.random.default_rng(0).integers(1, 40, 500)
    widths = bucket_widths(lengths, 3)
    forward = BucketPlan(lengths, widths, 8, seed=1)
    in_order = [forward[index] for index in range(200)]
    jumping = BucketPlan(lengths, widths, 8, seed=1)
    for index in (199, 3, 150, 0, 64, 31, 32):
        rows, width = jumping[index]
        assert width == in_order[index][1] and np.array_equal(rows, in_order[index][0])
    other = BucketPlan(lengths, widths, 8, seed=2)
    assert not all(np.array_equal(other[index][0], in_order[index][0]) for index in range(5))


def test_little_is_padded_and_wide_batches_are_rare():
    lengths = np.random.default_rng(0).geometric(0.1, 5000).clip(1, 60)
    plan = BucketPlan(lengths, bucket_widths(lengths, 4), 16, seed=0)
    drawn = [plan[index] for index in range(10 * WINDOW)]
    waste = sum(width * 16 for _, width in drawn) / sum(lengths[rows].sum() for rows, _ in drawn)
    assert waste < 1.6 < 60 / lengths.mean()
    assert len({width for _, width in drawn}) == 4


def test_like_lengths_are_not_sorted_further():
    """Only the bucket counts: within a batch, sentences of one bucket stay as random as the order was."""
    lengths = np.repeat(np.arange(1, 11), 100)
    plan = BucketPlan(lengths, (10,), 10, seed=0)
    assert np.mean([len(set(lengths[plan[index][0]])) for index in range(50)]) > 5


@pytest.mark.parametrize("count", [1, 6])
def test_one_length_is_one_width(count):
    assert bucket_widths(np.full(7, 5), count) == (5,)
