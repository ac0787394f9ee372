"""Learning rates as functions of (update, hyperparameters), both of which may be traced.

Updates are counted from 1, in updates of the parameters and never in microbatches. Optax's own schedules compare their
arguments in Python, so they cannot serve under `vmap` over warm-ups.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float, Num

from training.hyperparameters import Hyperparameters

Schedule = Callable[[Num[Array, ""], Hyperparameters], Float[Array, ""]]


def noam(update: Num[Array, ""], hyper: Hyperparameters) -> Float[Array, ""]:
    """peak_lr · min(update / warmup, √(warmup / update)): the paper's section 5.3, named after its author.

    The paper's d_model^−½ · min(update^−½, update · warmup^−1.5) is the case peak_lr = (d_model · warmup)^−½, 7.0e-4
    for the base model.
    """
    warmup = jnp.maximum(hyper["warmup_steps"], 1.0)
    return hyper["peak_lr"] * jnp.minimum(update / warmup, jnp.sqrt(warmup / update))


def cosine(update: Num[Array, ""], hyper: Hyperparameters) -> Float[Array, ""]:
    """After the warm-up half a cosine, from the peak down to `final_lr_fraction` of it at the last update."""
    return _decay(update, hyper, 0.5 * (1.0 + jnp.cos(jnp.pi * _progress(update, hyper))))


def linear(update: Num[Array, ""], hyper: Hyperparameters) -> Float[Array, ""]:
    """After the warm-up a straight line, from the peak down to `final_lr_fraction` of it at the last update."""
    return _decay(update, hyper, 1.0 - _progress(update, hyper))


def constant(update: Num[Array, ""], hyper: Hyperparameters) -> Float[Array, ""]:
    """After the warm-up the peak."""
    return hyper["peak_lr"] * _warmup(update, hyper)


SCHEDULES: dict[str, Schedule] = {"noam": noam, "cosine": cosine, "linear": linear, "constant": constant}


def _warmup(update: Array, hyper: Hyperparameters) -> Array:
    return jnp.minimum(1.0, update / jnp.maximum(hyper["warmup_steps"], 1.0))


def _progress(update: Array, hyper: Hyperparameters) -> Array:
    """Return the fraction of the decay that is done: 0 to the end of the warm-up, 1 from the last update on."""
    decay_steps = jnp.maximum(hyper["total_steps"] - hyper["warmup_steps"], 1.0)
    return jnp.clip((update - hyper["warmup_steps"]) / decay_steps, 0.0, 1.0)


def _decay(update: Array, hyper: Hyperparameters, shape: Array) -> Array:
    floor = hyper["final_lr_fraction"]
    return hyper["peak_lr"] * _warmup(update, hyper) * (floor + (1.0 - floor) * shape)
