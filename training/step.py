"""One update of the parameters, as a pure function of (state, batch)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, Key, PyTree

from training.hyperparameters import Hyperparameters
from training.loss import Batch, Loss, Metrics
from training.optimizer import Optimizer
from training.schedules import Schedule


class TrainState(NamedTuple):
    """The train state: all that a step changes or needs, saved and restored as a whole."""

    step: Int[Array, ""]
    """Updates so far."""
    params: PyTree
    opt_state: PyTree
    key: Key[Array, ""]
    """Root of the run's dropout keys; each step folds its number into it."""
    hyperparameters: Hyperparameters


TrainStep = Callable[[TrainState, Batch], tuple[TrainState, Metrics]]


def init_state(
    init: Callable[[Key[Array, ""]], PyTree], optimizer: Optimizer, hyper: Hyperparameters, seed: int | Int[Array, ""]
) -> TrainState:
    """Initialize the train state, the parameters by `init(key)`. The seed may be traced, as uint32."""
    params_key, key = jax.random.split(jax.random.key(seed, impl="threefry2x32"))
    params = init(params_key)
    return TrainState(
        step=jnp.int32(0),
        params=params,
        opt_state=optimizer(hyper, jnp.float32(0)).init(params),
        key=key,
        hyperparameters=hyper,
    )


def make_train_step(
    loss: Loss, optimizer: Optimizer, schedule: Schedule, grad_accumulation_steps: int = 1
) -> TrainStep:
    """`train_step(state, batch) -> (state, metrics)`: gradient of the summed loss, divided once by the count, applied.

    Being pure it can be jitted, `vmap`ped over states with different hyperparameters, or spread over devices: sums and
    counts add, so neither microbatches nor devices change the loss or the gradient.

    A batch whose loss counts nothing (no real token in any row) makes no update: parameters and optimizer state, with
    its moments, counts and moving average, keep their bits. The step is counted, so the schedule advances.

    Args:
      grad_accumulation_steps: microbatches that the rows of a batch are cut into, one after another; must divide them.
        Each has dropout masks of its own.

    Returns:
      The step. Its metrics are those of the loss, with "learning_rate" and "gradient_norm" (before clipping).
    """

    def gradient(params: PyTree, batch: Batch, key: Array, hyper: Hyperparameters) -> tuple[PyTree, Metrics]:
        def summed(params: PyTree) -> tuple[Array, Metrics]:
            metrics = loss(params, batch, key, hyper)
            return metrics.get("objective", metrics["loss"])[0], metrics

        return jax.grad(summed, has_aux=True)(params)

    def train_step(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        params, hyper = state.params, state.hyperparameters
        key = jax.random.fold_in(state.key, state.step)
        if grad_accumulation_steps == 1:
            grads, metrics = gradient(params, batch, key, hyper)
        else:

            def add(sums: tuple[PyTree, Metrics], piece: tuple[Array, Batch]) -> tuple[tuple[PyTree, Metrics], None]:
                index, microbatch = piece
                terms = gradient(params, microbatch, jax.random.fold_in(key, index), hyper)
                return jax.tree.map(jnp.add, sums, terms), None

            microbatches = jax.tree.map(lambda x: _cut(x, grad_accumulation_steps), batch)
            first = jax.tree.map(lambda x: x[0], microbatches)
            zeros = jax.tree.map(
                lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(gradient, params, first, key, hyper)
            )
            (grads, metrics), _ = jax.lax.scan(add, zeros, (jnp.arange(grad_accumulation_steps), microbatches))
        count = metrics["loss"][1]
        grads = jax.tree.map(lambda g: g / jnp.maximum(count, 1).astype(g.dtype), grads)
        learning_rate = schedule(state.step + 1, hyper)
        updates, opt_state = optimizer(hyper, learning_rate).update(grads, state.opt_state, params)
        one = jnp.int32(1)
        metrics |= {"learning_rate": (learning_rate, one), "gradient_norm": (optax.global_norm(grads), one)}
        updated = optax.apply_updates(params, updates), opt_state
        # With a gradient of 0, momentum and weight decay would still move the parameters.
        params, opt_state = jax.tree.map(
            lambda new, old: jnp.where(count > 0, new, old), updated, (params, state.opt_state)
        )
        return state._replace(step=state.step + 1, params=params, opt_state=opt_state), metrics

    return train_step


def _cut(x: Any, pieces: int) -> Array:
    if x.shape[0] % pieces:
        raise ValueError(f"grad_accumulation_steps={pieces} must divide the batch of {x.shape[0]} rows")
    return x.reshape(pieces, x.shape[0] // pieces, *x.shape[1:])
