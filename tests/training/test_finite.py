"""A state that is not finite is found in the step that made it, whatever step that was."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.model.samples import assert_same_bits
from tests.training.samples import TableModel, constant_rate, known_batch, run, table_state
from training.ema import averaged
from training.finite import NonFiniteError, all_finite, check_finite, check_flags, with_finite_flags
from training.loss import token_loss
from training.optimizer import adamw
from training.step import make_train_step

HYPER = {"b1": 0.9, "b2": 0.98, "epsilon": 1e-9, "ema": 0.9}


def spoiled(part, value):
    """A step of an experiment's own that puts `value` into one place of the state, and reports a finite loss."""
    step = make_train_step(token_loss(TableModel()), averaged(adamw), constant_rate)

    def own_step(state, batch):
        new, metrics = step(state, batch)
        if part == "parameters":
            return new._replace(params=jax.tree.map(lambda x: x.at[0, 0, 0].set(value), new.params)), metrics
        if part == "average":
            average = jax.tree.map(lambda x: x.at[0, 0, 0].set(value), new.opt_state.average)
            return new._replace(opt_state=new.opt_state._replace(average=average)), metrics
        moments = optax.tree_utils.tree_get(new.opt_state, part)
        moments = jax.tree.map(lambda x: x.at[0, 0, 0].set(value), moments)
        return new._replace(opt_state=optax.tree_utils.tree_set(new.opt_state, **{part: moments})), metrics

    return own_step


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("part", "named"),
    [
        ("parameters", "parameters"),
        ("mu", "optimizer's state"),
        ("nu", "optimizer's state"),
        ("average", "optimizer's state"),
    ],
)
def test_one_value_of_the_state_that_is_none_is_found(part, named, value):
    params, batch = known_batch()
    state = table_state(params, optimizer=averaged(adamw), **HYPER)
    _, metrics = jax.jit(with_finite_flags(spoiled(part, value)))(state, batch)
    assert np.isfinite(metrics["loss"][0])
    with pytest.raises(NonFiniteError, match=f"^step 7 has left NaN or infinity in the {named}$"):
        check_flags(jax.device_get(metrics), 7)


def test_the_flags_change_neither_the_state_nor_the_metrics():
    params, batch = known_batch()
    state = table_state(params, optimizer=averaged(adamw), **HYPER)
    step = make_train_step(token_loss(TableModel()), averaged(adamw), constant_rate)
    plain, alone = run(jax.jit(step), state, 3 * [batch])
    flagged, with_flags = run(jax.jit(with_finite_flags(step)), state, 3 * [batch])
    assert_same_bits(flagged.params, plain.params)
    assert_same_bits(flagged.opt_state, plain.opt_state)
    assert_same_bits([check_flags(metrics, 1) for metrics in with_flags], alone)


def test_a_scalar_of_the_optimizer_s_may_be_infinite():
    """`optax.contrib.reduce_on_plateau` begins with the best loss ∞."""
    params, batch = known_batch()
    state = table_state(params)._replace(opt_state={"best_loss": jnp.float32(np.inf), "key": jax.random.key(0)})
    _, metrics = jax.jit(with_finite_flags(lambda state, batch: (state, {})))(state, batch)
    assert check_flags(jax.device_get(metrics), 1) == {}


def test_what_has_no_floats_is_finite():
    assert all_finite({}) and all_finite({"count": jnp.int32(1)}) and all_finite({"half": jnp.bfloat16(1e38)})
    assert not all_finite({"half": jnp.float16(np.inf), "whole": jnp.float32(1)})


def test_the_first_number_that_is_none_is_named():
    check_finite({"loss": 1.0, "exact_match": 0}, "on test")
    with pytest.raises(NonFiniteError, match=r"^the exact match on test is nan$"):
        check_finite({"loss": 1.0, "exact_match": np.float32(np.nan), "accuracy": np.inf}, "on test")
