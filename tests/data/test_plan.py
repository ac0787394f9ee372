"""The batch plan: everything exactly once, and a function of the batch index alone."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.plan import EvalPlan, TrainPlan

sizes = st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n)))


def stream(plan: TrainPlan, batches: int) -> np.ndarray:
    return np.concatenate([plan[index] for index in range(batches)])


@given(sizes, st.integers(0, 2**32), st.integers(1, 4))
def test_every_example_comes_once_in_every_epoch(size, seed, epochs):
    num_examples, batch_size = size
    rows = stream(TrainPlan(num_examples, batch_size, seed), -(-num_examples * epochs // batch_size))
    for epoch in range(epochs):
        assert sorted(rows[epoch * num_examples : (epoch + 1) * num_examples]) == list(range(num_examples))


@given(sizes, st.integers(0, 100), st.lists(st.integers(0, 1000), min_size=1, max_size=8))
def test_a_batch_depends_on_its_index_alone(size, seed, indices):
    used = TrainPlan(*size, seed)
    for index in indices:
        batch = used[index]
        assert batch.shape == (size[1],)
        assert (batch == TrainPlan(*size, seed)[index]).all()


@given(sizes)
def test_the_order_does_not_depend_on_the_batch_size(size):
    num_examples, batch_size = size
    rows = stream(TrainPlan(num_examples, batch_size, 5), 2 * -(-num_examples // batch_size))[:num_examples]
    assert (rows == TrainPlan(num_examples, num_examples, 5)[0]).all()


def test_the_order_changes_with_seed_and_epoch():
    orders = [tuple(TrainPlan(100, 100, seed)[epoch]) for seed in (0, 1, 2) for epoch in (0, 1, 2)]
    assert len(set(orders)) == 9
    assert tuple(range(100)) not in orders


def test_the_order_is_the_same_for_ever():
    """A run must be resumable after an upgrade of NumPy: these numbers never change."""
    assert TrainPlan(10, 10, 0)[0].tolist() == [4, 6, 2, 7, 3, 5, 9, 0, 8, 1]
    assert TrainPlan(10, 10, 7)[3].tolist() == [3, 5, 4, 7, 8, 0, 9, 2, 1, 6]


def test_a_batch_handed_out_may_be_written_to():
    plan = TrainPlan(10, 5, 0)
    before = plan[0].copy()
    plan[0][:] = -7
    assert (plan[0] == before).all()


def test_threads_see_the_same_batches():
    plan, expected = TrainPlan(50, 7, 3), TrainPlan(50, 7, 3)
    wrong = []

    def work(first: int) -> None:
        wrong.extend(index for index in range(first, 300, 4) if (plan[index] != EXPECTED[index]).any())

    EXPECTED = [expected[index] for index in range(300)]
    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@given(st.integers(0, 50), st.integers(1, 60))
def test_evaluation_sees_every_example_once_in_order(num_examples, batch_size):
    plan = EvalPlan(num_examples, batch_size)
    batches = [plan[index] for index in range(len(plan))]
    assert all(batch.shape == (batch_size,) for batch in batches)
    rows = [row for batch in batches for row in batch.tolist()]
    assert rows[:num_examples] == list(range(num_examples))
    assert set(rows[num_examples:]) <= {-1} and len(rows) - num_examples < batch_size


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, 4, 0), "batch_size must be between 1 and the number of training examples, 3, not 4"),
        ((3, 0, 0), "batch_size must be between 1"),
        ((0, 1, 0), "no examples to train on"),
        ((3, 1, -1), "seed must not be negative"),
    ],
)
def test_an_impossible_plan_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        TrainPlan(*arguments)


def test_batches_that_do_not_exist():
    for plan, index in ((TrainPlan(3, 1, 0), -1), (EvalPlan(3, 2), 2), (EvalPlan(3, 2), -1)):
        with pytest.raises(IndexError):
            plan[index]
    with pytest.raises(ValueError, match="batch_size"):
        EvalPlan(3, 0)
