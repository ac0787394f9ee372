"""Rotary positions (Su et al. 2021), as a function that cards hand to the model."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array

from model.embedding import look_up


def rotary(heads: Array, positions: Array, max_length: int = 1024) -> Array:
    """Each pair (x_i, x_{i + K/2}) of a query or key turned by position · 10000^(−2i/K).

    The score of a query and a key then depends on what they are and on the distance between them. Cosines and sines
    come from a table, computed in float64: inside the program they would be computed anew for every head and row.

    Args:
      heads: [B, H, T, K], K even.
      positions: [B, T] or [1, T], integers below max_length.
    """
    half = heads.shape[-1] // 2
    angles = np.arange(max_length)[:, None] * 10000.0 ** (-np.arange(half) / half)
    table = np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    turns = look_up(jnp.asarray(table), positions)[:, None]  # [B, 1, T, K]
    cos, sin = turns[..., :half], turns[..., half:]
    first, second = heads[..., :half], heads[..., half:]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
