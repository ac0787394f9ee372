"""One program for many trials: each member's step is the step of a single run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sweeps.options import VECTORIZED
from training.config import OptimizerConfig, TrainConfig
from training.hyperparameters import hyperparameters
from training.members import compile_quicker, members_mesh, over_members, stack_hyperparameters


def test_hyperparameters_are_stacked_and_what_one_leaves_out_has_no_effect():
    stacked = stack_hyperparameters(
        [{"peak_lr": 1.0, "clip_norm": 2.0}, {"peak_lr": 3.0}, {"peak_lr": 0.5, "dropout": 0.1}]
    )
    np.testing.assert_array_equal(stacked["peak_lr"], np.float32([1.0, 3.0, 0.5]))
    np.testing.assert_array_equal(stacked["clip_norm"], np.float32([2.0, np.inf, np.inf]))
    np.testing.assert_array_equal(stacked["dropout"], np.float32([0.0, 0.0, 0.1]))
    with pytest.raises(ValueError, match="trials with ema and without"):
        stack_hyperparameters([{"ema": 0.9}, {}])


@pytest.mark.parametrize("method", ["vmap", "map"])
@pytest.mark.parametrize("shared", [True, False])
def test_each_member_gets_what_it_would_alone(method, shared):
    def step(state, batch):
        new = state["w"] - state["lr"] * batch["x"].sum(axis=0)
        return {"w": new, "lr": state["lr"]}, {"norm": jnp.linalg.norm(new)}

    states = {"w": jnp.arange(12.0).reshape(4, 3), "lr": jnp.float32([0.1, 0.2, 0.3, 0.4])}
    batch = {"x": jnp.ones((5, 3)) if shared else jnp.arange(60.0).reshape(4, 5, 3)}
    new, metrics = jax.jit(over_members(step, method, members_mesh(), shared=shared))(states, batch)
    for member in range(4):
        own = batch if shared else {"x": batch["x"][member]}
        alone, measured = step({"w": states["w"][member], "lr": states["lr"][member]}, own)
        np.testing.assert_allclose(new["w"][member], alone["w"], rtol=1e-6)
        np.testing.assert_allclose(metrics["norm"][member], measured["norm"], rtol=1e-6)


def test_the_quicker_of_two_programs_is_chosen_and_the_state_is_left():
    def slow(states, batch):
        return states + jnp.linalg.matrix_power(jnp.eye(600) * 0.5, 31).sum() * 0, batch["labels"]

    steps = {
        "vmap": jax.jit(slow, donate_argnums=0),
        "map": jax.jit(lambda states, batch: (states + 0, batch["labels"]), donate_argnums=0),
    }
    states = jnp.ones(3)
    method, step, seconds = compile_quicker(steps, states, [{"labels": jnp.zeros((2, 2), jnp.int32)}])
    assert method == "map" and seconds["map"] < seconds["vmap"]
    np.testing.assert_array_equal(step(states, {"labels": jnp.zeros((2, 2), jnp.int32)})[0], np.ones(3))


def test_the_options_of_vectorized_trials_are_the_numbers_of_the_train_state():
    """What is added to the hyperparameters is added to `sweeps.options.VECTORIZED`, or named here with its reason."""
    from model.config import TransformerConfig

    model = TransformerConfig(dropout=0.1, attention_dropout=0.1)
    train = TrainConfig(label_smoothing=0.1, ema=0.5)
    names = set(hyperparameters(model, OptimizerConfig(weight_decay=0.1), train))
    not_options = {"total_steps"}  # the program's length
    other_states = {"ema"}  # changes the tree of the train state
    assert {name.rpartition(".")[2] for name in VECTORIZED} == names - not_options - other_states
