"""Detection of NaN and infinite values: such a run ends, and keeps no checkpoint with them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from training.loss import Batch, Metrics
from training.step import TrainState, TrainStep

FLAGS = {"finite_parameters": "parameters", "finite_optimizer_state": "optimizer's state"}
"""Metrics of `with_finite_flags`, and what each is about."""


class NonFiniteError(ValueError):
    """A loss, a gradient or a parameter is NaN or infinite; the message names the step."""


def check_finite(values: Mapping[str, Any], where: str) -> None:
    """Raises NonFiniteError for the first of `values`, numbers on the host, that is not finite."""
    for name, value in values.items():
        if not math.isfinite(value):
            raise NonFiniteError(f"the {name.replace('_', ' ')} {where} is {float(value)}")


def check_flags(metrics: Metrics, step: int) -> Metrics:
    """Return `metrics`, on the host, without the flags. Raises NonFiniteError if one of them is False."""
    for name, what in FLAGS.items():
        if name in metrics and not metrics[name][0]:
            raise NonFiniteError(f"step {step} has left NaN or infinity in the {what}")
    return {name: pair for name, pair in metrics.items() if name not in FLAGS}


def with_finite_flags(step: TrainStep) -> TrainStep:
    """Wrap `step` to add to its metrics flags that tell whether the returned state is finite.

    Any step, an experiment's own too: a finite loss and gradient do not tell what the update has made of the
    parameters. The flags stay on the device with the other metrics, so reading them adds no synchronisation.
    """

    def train_step(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        new, metrics = step(state, batch)
        # Behind the barrier, so that the step is compiled as it would be without: the same bits.
        params, opt_state = jax.lax.optimization_barrier((new.params, new.opt_state))
        # A scalar of the optimizer's may be infinite by design, as the best loss so far is before there is one.
        arrays = [leaf for leaf in jax.tree.leaves(opt_state) if leaf.ndim]
        one = jnp.int32(1)
        flags = {"finite_parameters": (all_finite(params), one), "finite_optimizer_state": (all_finite(arrays), one)}
        return new, metrics | flags

    return train_step


def all_finite(tree: PyTree) -> Bool[Array, ""]:
    """Return whether every floating-point value of `tree` is finite (bool array, no shape)."""
    floats = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in floats]).all() if floats else jnp.bool_(True)
