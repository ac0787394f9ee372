"""An exponential moving average of the parameters, kept while they are trained."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from training.hyperparameters import Hyperparameters
from training.optimizer import Optimizer


class AveragedState(NamedTuple):
    """State of `averaged`: the inner optimizer's state and the averaged parameters."""

    optimizer: PyTree
    updates: Int[Array, ""]
    """How many the average has seen."""
    average: PyTree
    """Like the parameters, float32 as they are."""


def averaged(optimizer: Optimizer) -> Optimizer:
    """Wrap `optimizer` to keep average ← d · average + (1 − d) · parameters after each update.

    d is the hyperparameter "ema", in update n at most n / (n + 9): so the random parameters of the beginning, of which
    d alone would keep a share for long, are forgotten quickly. The updates themselves are not changed. Without the
    hyperparameter it is `optimizer`, its state the same.
    """

    def build(hyper: Hyperparameters, learning_rate: Float[Array, ""]) -> optax.GradientTransformation:
        inner = optimizer(hyper, learning_rate)
        if "ema" not in hyper:
            return inner

        def init(params: PyTree) -> AveragedState:
            # Copies: the step gives both buffers away, and one cannot be given twice.
            return AveragedState(inner.init(params), jnp.int32(0), jax.tree.map(jnp.copy, params))

        def update(grads: PyTree, state: AveragedState, params: PyTree) -> tuple[PyTree, AveragedState]:
            changes, inner_state = inner.update(grads, state.optimizer, params)
            updates = state.updates + 1
            decay = jnp.minimum(hyper["ema"], updates / (updates + 9)).astype(jnp.float32)
            new = optax.apply_updates(params, changes)
            average = jax.tree.map(lambda old, now: old + (1 - decay) * (now - old), state.average, new)
            return changes, AveragedState(inner_state, updates, average)

        return optax.GradientTransformation(init, update)

    return build
