"""How parameters start: Xavier for every projection, N(0, 1/d_model) for every table."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jaxtyping import Float, Key

from model.shapes import Array, Params


def init_linear(key: Key[Array, ""], fan_in: int, fan_out: int, bias: bool) -> Params:
    """{"kernel": [fan_in, fan_out]} and, if asked for, {"bias": [fan_out]} of zeros.

    The kernel is Xavier uniform, U(±√(6 / (fan_in + fan_out))), standard deviation √(2 / (fan_in + fan_out)). Queries,
    keys and values are projections of their own, never one packed matrix whose fan_out would be three times too large,
    so the number of heads changes nothing either.
    """
    limit = math.sqrt(6.0 / (fan_in + fan_out))
    params = {"kernel": jax.random.uniform(key, (fan_in, fan_out), jnp.float32, -limit, limit)}
    return params | ({"bias": jnp.zeros(fan_out, jnp.float32)} if bias else {})


def init_embedding(key: Key[Array, ""], rows: int, d_model: int) -> Float[Array, "V D"]:
    """Rows drawn from N(0, 1/d_model): of length about 1, and of unit variance once scaled by √d_model."""
    return jax.random.normal(key, (rows, d_model), jnp.float32) * d_model**-0.5
