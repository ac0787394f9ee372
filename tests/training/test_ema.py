"""The moving average of the parameters: its formula, that nothing else changes, and that it goes on where it was."""

import jax
import jax.numpy as jnp
import numpy as np

from tests.training.samples import TableModel, constant_rate, known_batch, run, sgd, table_state
from training.checkpoint import CheckpointManager
from training.ema import AveragedState, averaged
from training.loss import token_loss
from training.step import make_train_step

PARAMS, BATCH = known_batch()
STEP = jax.jit(make_train_step(token_loss(TableModel()), averaged(sgd), constant_rate))


def state_of(**hyper):
    return table_state(PARAMS, averaged(sgd), peak_lr=5.0, **hyper)


def logits(state):
    return np.asarray(state.params["logits"], np.float64)


def test_it_is_the_formula_and_the_training_is_as_without():
    state, plain, wanted = state_of(ema=0.4), state_of(), logits(state_of())
    assert isinstance(state.opt_state, AveragedState) and not isinstance(plain.opt_state, AveragedState)
    for update in range(1, 8):
        (state, _), (plain, _) = STEP(state, BATCH), STEP(plain, BATCH)
        np.testing.assert_array_equal(logits(state), logits(plain))
        decay = min(0.4, update / (update + 9))
        wanted = decay * wanted + (1 - decay) * logits(state)
        np.testing.assert_allclose(state.opt_state.average["logits"], wanted, atol=1e-6)
    assert abs(wanted - logits(state)).max() > 1e-3


def test_without_it_the_state_is_that_of_the_optimizer():
    """So that checkpoints of runs without an average stay what they are."""
    assert jax.tree.structure(state_of()) == jax.tree.structure(table_state(PARAMS, sgd, peak_lr=5.0))


def test_it_goes_on_bit_for_bit(tmp_path):
    whole, _ = run(STEP, state_of(ema=0.9), [BATCH] * 4)
    half, _ = run(STEP, state_of(ema=0.9), [BATCH] * 2)
    with CheckpointManager(tmp_path, keep=1) as checkpoints:
        checkpoints.save(2, half, {})
        half, _ = checkpoints.restore(state_of(ema=0.9))
    again, _ = run(STEP, half, [BATCH] * 2)
    np.testing.assert_array_equal(again.opt_state.average["logits"], whole.opt_state.average["logits"])


def test_many_decays_in_one_program():
    decays = jnp.array([0.5, 0.9])
    states = jax.vmap(lambda ema: state_of(ema=0.5)._replace(hyperparameters={"peak_lr": jnp.float32(5), "ema": ema}))(
        decays
    )
    together = jax.jit(jax.vmap(STEP, in_axes=(0, None)))
    for _ in range(12):
        states, _ = together(states, BATCH)
    for number, decay in enumerate((0.5, 0.9)):
        alone, _ = run(STEP, state_of(ema=decay), [BATCH] * 12)
        found = states.opt_state.average["logits"][number]
        np.testing.assert_allclose(found, alone.opt_state.average["logits"], atol=1e-6)
