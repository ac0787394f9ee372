"""The Optax chain, built inside the step from hyperparameters that may be traced."""

from __future__ import annotations

from collections.abc import Callable

import jax
import optax
from jaxtyping import Array, Float, PyTree

from training.hyperparameters import Hyperparameters

Optimizer = Callable[[Hyperparameters, Float[Array, ""]], optax.GradientTransformation]
"""(hyperparameters, learning rate of this update) -> the chain whose updates are added to the parameters."""


def adamw(hyper: Hyperparameters, learning_rate: Float[Array, ""]) -> optax.GradientTransformation:
    """Build AdamW: clipping by global norm, Adam, decoupled weight decay (Loshchilov & Hutter 2019), learning rate.

    The gradient that is clipped is the one of the whole batch: summed over microbatches and devices, divided once.
    Decay comes after Adam's scaling; before it, it would be the L2 penalty that AdamW is not.
    """
    chain = [optax.clip_by_global_norm(hyper["clip_norm"])] if "clip_norm" in hyper else []
    chain += [optax.scale_by_adam(hyper["b1"], hyper["b2"], hyper["epsilon"])]
    if "weight_decay" in hyper:
        chain += [optax.add_decayed_weights(hyper["weight_decay"], mask=decayed)]
    return optax.chain(*chain, optax.scale(-learning_rate))


def decayed(params: PyTree) -> PyTree:
    """True for the parameters that weight decay shrinks: those named "kernel", the matrices of projections.

    Biases, norms, embedding and position tables stay. The rule goes by name, because stacking by layer gives a bias
    the rank of a matrix.
    """
    return jax.tree_util.tree_map_with_path(lambda path, leaf: path[-1].key == "kernel", params)
