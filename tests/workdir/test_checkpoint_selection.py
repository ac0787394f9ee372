"""Which checkpoint is the best, and what an average is of."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.training.samples import known_batch, sgd, table_state
from training.checkpoint import CheckpointManager, metric_key
from training.ema import averaged
from workdir.checkpoint_selection import select_params

PARAMS, _ = known_batch()


def state_at(step):
    state = table_state(PARAMS, sgd)
    return state._replace(params={"logits": jnp.full_like(state.params["logits"], step)})


def fill(checkpoints, measured):
    for step, value in measured.items():
        checkpoints.save(step, state_at(step), {}, None if value is None else {checkpoints.best_metric: value})


@pytest.mark.parametrize(
    ("direction", "measured", "best"),
    [
        ("min", {1: 3.0, 2: 1.0, 3: 2.0, 4: None, 5: float("nan"), 6: 5.0}, 2),
        ("max", {1: 3.0, 2: 9.0, 3: 2.0, 4: None, 5: float("nan"), 6: 5.0}, 2),
        ("max", {1: 0.5, 2: 1.0, 3: 1.0, 4: 0.2, 5: 0.3, 6: 0.1}, 3),
    ],
)
def test_the_best_is_kept_besides_the_newest(tmp_path, direction, measured, best):
    """Low or high as declared, not by its name; of equals the newest; what was not measured is never the best."""
    with CheckpointManager(tmp_path, 2, "ppl", direction) as checkpoints:
        fill(checkpoints, measured)
    with CheckpointManager(tmp_path, 2, "ppl", direction) as checkpoints:
        assert checkpoints.steps() == sorted({best, *list(measured)[-2:]})
        chosen = select_params(checkpoints, table_state(PARAMS, sgd), "best", 2)
    assert (chosen.params["logits"] == best).all() and chosen.name == f"step{best}"


def test_an_average_is_of_the_newest_alone(tmp_path):
    """Step 1, kept for being the best, does not come in; two of two steps do."""
    with CheckpointManager(tmp_path, 3, "loss", "min") as checkpoints:
        fill(checkpoints, {1: 0.0, 2: 1.0, 3: 1.0, 4: 1.0, 7: 1.0})
        like = table_state(PARAMS, sgd)
        assert checkpoints.steps() == [1, 3, 4, 7]
        three = select_params(checkpoints, like, "average:3", 3)
        np.testing.assert_allclose(three.params["logits"], (3 + 4 + 7) / 3, rtol=1e-7)
        assert three.params["logits"].dtype == jnp.float32 and three.name == "average3-step7"
        two = select_params(checkpoints, like, "average:2", 3)
        np.testing.assert_allclose(two.params["logits"], (4 + 7) / 2, rtol=1e-7)
        with pytest.raises(
            ValueError, match=r"average:4 wants the newest 4 checkpoints, and the run has kept 3 \(3, 4"
        ):
            select_params(checkpoints, like, "average:4", 3)
        assert (select_params(checkpoints, like, "1", 3).params["logits"] == 1).all()
        with pytest.raises(ValueError, match="no moving average of its parameters"):
            select_params(checkpoints, like, "ema", 3)


def test_none_is_the_best_where_none_was_measured(tmp_path):
    with CheckpointManager(tmp_path, 2, "loss", "min") as checkpoints:
        with pytest.raises(ValueError, match="there is no checkpoint yet"):
            select_params(checkpoints, table_state(PARAMS, sgd), "last", 2)
        fill(checkpoints, {1: None, 2: float("nan"), 3: float("inf")})
        with pytest.raises(ValueError, match="no checkpoint was saved with a finite loss, which tells the best"):
            select_params(checkpoints, table_state(PARAMS, sgd), "best", 2)


def test_more_goodness_is_better():
    assert metric_key(1.0, "min") > metric_key(2.0, "min") > metric_key(None, "min") == -np.inf
    assert metric_key(2.0, "max") > metric_key(1.0, "max") > metric_key(np.nan, "max") == metric_key(np.inf, "max")


def test_none_is_the_best_by_a_metric_whose_direction_nobody_declared(tmp_path):
    """An old run whose experiment declares nothing can still be used, but for its best checkpoint."""
    with CheckpointManager(tmp_path, 2, "ter") as checkpoints:
        fill(checkpoints, {1: 3.0, 2: 1.0, 3: 2.0})
        assert checkpoints.steps() == [2, 3]
        assert select_params(checkpoints, table_state(PARAMS, sgd), "last", 2).name == "step3"
        with pytest.raises(ValueError, match="which way ter is better is not declared"):
            select_params(checkpoints, table_state(PARAMS, sgd), "best", 2)


def adam(hyper, learning_rate):
    return optax.adam(learning_rate)


def bytes_read(function):
    """What `function` returns, and how many bytes this process reads from files while it runs."""

    def count() -> int:
        return int(Path("/proc/self/io").read_text().split("rchar:")[1].split()[0])

    before = count()
    return function(), count() - before


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="Linux counts the bytes that a process reads")
def test_parameters_are_read_without_the_rest_of_the_state(tmp_path):
    """Of four equal parts (parameters, two moments, moving average) one is read, with every bit of a whole restore."""
    size, random = 1 << 18, np.random.default_rng(0)
    state = table_state({"logits": np.zeros(size, np.float32)}, averaged(adam), ema=0.9)
    with CheckpointManager(tmp_path, 2, "loss", "min") as checkpoints:
        for step in (1, 2):  # noise, which does not compress
            state = jax.tree.map(lambda x: random.normal(size=size).astype(x.dtype) if x.size > 1 else x, state)
            checkpoints.save(step, state, {}, {"loss": 1.0 / step})
    like = jax.eval_shape(lambda: state)
    with CheckpointManager(tmp_path, 2, "loss", "min") as checkpoints:
        whole = {step: checkpoints.restore(like, step)[0] for step in (1, 2)}
        _, count_whole = bytes_read(lambda: checkpoints.restore(like, 2))
        assert count_whole > 3.5 * 4 * size
        for choice, wanted in {
            "last": whole[2].params["logits"],
            "best": whole[2].params["logits"],
            "1": whole[1].params["logits"],
            "ema": whole[2].opt_state.average["logits"],
            "average:2": (np.float64(whole[1].params["logits"]) + np.float64(whole[2].params["logits"])) / 2,
        }.items():
            selected, count = bytes_read(lambda choice=choice: select_params(checkpoints, like, choice, 2))
            np.testing.assert_array_equal(selected.params["logits"], np.float32(wanted), err_msg=choice)
            assert count < 0.3 * count_whole * (2 if choice == "average:2" else 1), choice


def test_a_moving_average_that_was_not_kept_is_said_before_anything_is_read(tmp_path):
    with CheckpointManager(tmp_path, 2) as checkpoints, pytest.raises(ValueError, match="has kept no moving average"):
        select_params(checkpoints, table_state(PARAMS, sgd), "ema", 2)
