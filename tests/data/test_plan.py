"""The batch plan: everything exactly once, and a function of the batch index alone."""

import pickle
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.plan import EvalPlan, TrainPlan, process_shard

rows_of_buckets = st.lists(st.integers(1, 8), min_size=1, max_size=6)


@st.composite
def layouts(draw):
    """(bucket of each example, rows of each bucket); buckets may be empty, or smaller than a batch."""
    rows = draw(rows_of_buckets)
    buckets = draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=40))
    return np.array(buckets), tuple(rows)


def one_bucket(num_examples: int, batch_size: int, seed: int) -> TrainPlan:
    return TrainPlan(np.zeros(num_examples, int), (batch_size,), seed)


def stream(plan, batches) -> np.ndarray:
    """The examples of these batches."""
    rows = np.concatenate([plan[index][0] for index in batches])
    return rows[rows >= 0]


def epoch(plan: TrainPlan, number: int) -> np.ndarray:
    return stream(plan, range(number * plan.batches_per_epoch, (number + 1) * plan.batches_per_epoch))


@given(layouts(), st.integers(0, 2**32 - 1), st.integers(0, 3))
def test_every_example_comes_exactly_once_in_every_epoch(layout, seed, number):
    plan = TrainPlan(*layout, seed)
    assert sorted(epoch(plan, number)) == list(range(len(layout[0])))


@given(layouts(), st.integers(0, 10))
def test_a_batch_is_of_its_bucket_s_shape_and_holds_what_fits(layout, seed):
    buckets, rows = layout
    plan = TrainPlan(buckets, rows, seed)
    for index in range(2 * plan.batches_per_epoch):
        examples, bucket = plan[index]
        assert examples.shape == (rows[bucket],)
        assert buckets[examples[examples >= 0]].max() <= bucket
        assert (np.diff((examples >= 0).astype(int)) <= 0).all()  # rows without example are behind the others


@given(layouts(), st.integers(0, 10))
def test_only_the_last_bucket_has_rows_without_example_and_fewer_than_a_batch(layout, seed):
    buckets, rows = layout
    plan = TrainPlan(buckets, rows, seed)
    batches = [plan[index] for index in range(plan.batches_per_epoch)]
    missing = [(int((examples < 0).sum()), bucket) for examples, bucket in batches]
    assert sum(number for number, bucket in missing if bucket == len(rows) - 1) < rows[-1]
    assert not any(number for number, bucket in missing if bucket < len(rows) - 1)
    # They are dealt out evenly: no batch is much smaller than another.
    last = [number for number, bucket in missing if bucket == len(rows) - 1]
    assert not last or max(last) - min(last) <= 1


@given(layouts(), st.integers(0, 10))
def test_few_examples_are_in_a_wider_bucket_than_they_need(layout, seed):
    """Of each bucket less than one batch goes on to the next."""
    buckets, rows = layout
    plan = TrainPlan(buckets, rows, seed)
    moved = np.zeros(len(rows), int)
    for index in range(plan.batches_per_epoch):
        examples, bucket = plan[index]
        moved += np.bincount(buckets[examples[examples >= 0]], minlength=len(rows)) * (np.arange(len(rows)) < bucket)
    assert (moved < rows).all()


@given(layouts(), st.integers(0, 100), st.lists(st.integers(0, 1000), min_size=1, max_size=8))
def test_a_batch_depends_on_its_index_alone(layout, seed, indices):
    used = TrainPlan(*layout, seed)
    for index in indices:
        fresh = TrainPlan(*layout, seed)[index]
        assert used[index][1] == fresh[1] and np.array_equal(used[index][0], fresh[0])


@given(st.integers(1, 40), st.integers(1, 40))
def test_the_order_does_not_depend_on_the_batch_size(num_examples, batch_size):
    plan = one_bucket(num_examples, batch_size, 5)
    for number in (0, 1):
        assert np.array_equal(epoch(plan, number), epoch(one_bucket(num_examples, num_examples, 5), number))


def test_the_order_changes_with_seed_and_epoch_and_stream():
    orders = [
        tuple(TrainPlan(np.zeros(100, int), (100,), seed, stream)[number][0])
        for seed in (0, 1, 2)
        for stream in (0, 1)
        for number in (0, 1, 2)
    ]
    assert len(set(orders)) == 18
    assert tuple(range(100)) not in orders


def test_the_order_of_batches_is_shuffled_too():
    plan = TrainPlan(np.repeat([0, 1], 500), (10, 10), 0)
    orders = [tuple(plan[index][1] for index in range(100 * number, 100 * number + 100)) for number in range(3)]
    assert len(set(orders)) == 3 and all(sum(order) == 50 for order in orders)
    assert all(0 < sum(order[:50]) < 50 for order in orders)


def test_the_order_is_the_same_for_ever():
    """A run must be resumable after an upgrade of NumPy: these numbers never change."""
    assert one_bucket(10, 10, 0)[0][0].tolist() == [4, 6, 2, 7, 3, 5, 9, 0, 8, 1]
    assert one_bucket(10, 10, 7)[3][0].tolist() == [3, 5, 4, 7, 8, 0, 9, 2, 1, 6]
    plan = TrainPlan(np.arange(10) % 2, (2, 3), 1)
    assert [(rows.tolist(), bucket) for rows, bucket in map(plan.__getitem__, range(4))] == [
        ([0, 2], 0),
        ([5, 9, 3], 1),
        ([6, 7, 1], 1),
        ([8, 4], 0),
    ]


def test_a_batch_handed_out_may_be_written_to():
    plan = one_bucket(10, 5, 0)
    before = plan[0][0].copy()
    plan[0][0][:] = -7
    assert (plan[0][0] == before).all()


def test_threads_and_copies_see_the_same_batches():
    buckets = np.arange(50) % 3
    plan = TrainPlan(buckets, (7, 5, 2), 3)
    expected = [TrainPlan(buckets, (7, 5, 2), 3)[index][0] for index in range(300)]
    wrong = []

    def work(first: int) -> None:
        wrong.extend(index for index in range(first, 300, 4) if not np.array_equal(plan[index][0], expected[index]))

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert np.array_equal(pickle.loads(pickle.dumps(plan))[17][0], expected[17])


@given(layouts())
def test_evaluation_sees_every_example_once_in_file_order_within_a_bucket(layout):
    buckets, rows = layout
    plan = EvalPlan(buckets, rows)
    seen = []
    for examples, bucket in plan:
        assert examples.shape == (rows[bucket],)
        real = examples[examples >= 0]
        assert len(real) and (buckets[real] == bucket).all() and (examples[len(real) :] == -1).all()
        seen += real.tolist()
    assert seen == np.argsort(buckets, kind="stable").tolist()
    assert len(plan) == sum(-(-int((buckets == bucket).sum()) // rows[bucket]) for bucket in range(len(rows)))


@given(st.integers(1, 6), st.integers(1, 6))
def test_processes_share_a_batch(processes, each):
    rows = np.random.default_rng(0).permutation(processes * each)
    parts = [process_shard(rows, process, processes) for process in range(processes)]
    assert {len(part) for part in parts} == {each}
    assert np.array_equal(np.concatenate(parts), rows)


def test_processes_that_do_not_divide_a_batch():
    with pytest.raises(ValueError, match="a batch of 7 rows cannot be divided evenly among 2 processes"):
        process_shard(np.arange(7), 0, 2)
    with pytest.raises(ValueError, match="process must be between 0 and 1, not 2"):
        process_shard(np.arange(8), 2, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros(3, int), (0,), 0), "every bucket must have at least 1 row, not 0"),
        ((np.zeros(0, int), (1,), 0), "no examples to train on"),
        ((np.zeros(3, int), (1,), -1), r"seed must be a whole number from 0 to 2\*\*32 - 1, got -1"),
    ],
)
def test_an_impossible_plan_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        TrainPlan(*arguments)


def test_batches_that_do_not_exist():
    for plan, index in ((one_bucket(3, 1, 0), -1), (EvalPlan(np.zeros(3, int), (2,)), 2)):
        with pytest.raises(IndexError):
            plan[index]
    with pytest.raises(ValueError, match="batch_size must be at least 1, not 0"):
        EvalPlan(np.zeros(3, int), (0,))
