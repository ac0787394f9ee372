"""Layer normalisation (Ba et al. 2016) and RMSNorm (Zhang & Sennrich 2019), in float32 whatever the compute type."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Float

from model.shapes import Array, Params, along_last_axis

EPSILON = 1e-5
"""Added to the variance; the value of GPT-2 and of most published pre-norm models."""

RMS_EPSILON = 1e-6
"""Added to the mean square."""


def init_layer_norm(d_model: int, bias: bool = True) -> Params:
    """{"scale": ones [D]} and, if asked for, {"bias": zeros [D]}."""
    params = {"scale": jnp.ones(d_model, jnp.float32)}
    return params | ({"bias": jnp.zeros(d_model, jnp.float32)} if bias else {})


def layer_norm(params: Params, x: Float[Array, "*batch D"]) -> Float[Array, "*batch D"]:
    """(x − mean) / √(variance + 1e-5) · scale + bias over the last axis, the bias where there is one.

    The variance is the mean of squared deviations: subtracting first loses nothing when the mean is large.
    """
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
    y = centred * lax.rsqrt(variance + EPSILON) * along_last_axis(params["scale"], x)
    return y + along_last_axis(params["bias"], y) if "bias" in params else y


def init_rms_norm(d_model: int) -> Params:
    """{"scale": ones [D]}."""
    return {"scale": jnp.ones(d_model, jnp.float32)}


def rms_norm(params: Params, x: Float[Array, "*batch D"]) -> Float[Array, "*batch D"]:
    """x / √(mean of x² + 1e-6) · scale over the last axis: neither a mean is subtracted nor a bias added."""
    mean_square = jnp.mean(jnp.square(x), axis=-1, keepdims=True)
    return x * lax.rsqrt(mean_square + RMS_EPSILON) * along_last_axis(params["scale"], x)
