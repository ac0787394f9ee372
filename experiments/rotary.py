"""Rotary positions (Su et al. 2021), as a function that cards hand to the model."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array

from model.config import BlockConfig
from model.embedding import embedding_lookup
from model.multi_head import PositionFn


def rotary(config: BlockConfig) -> PositionFn:
    """Each pair (x_i, x_{i + K/2}) of a query or key turned by position · 10000^(−2i/K), up to `config.max_length`.

    The score of a query and a key then depends on what they are and on the distance between them. Cosines and sines
    come from a table, computed in float64: inside the program they would be computed anew for every head and row.

    Raises:
      ValueError: heads of odd width K, which have no pairs.
    """
    width, half = config.key_width, config.key_width // 2
    if width % 2:
        given = f"d_k={width}" if config.d_k else f"d_model={config.d_model} / num_heads={config.num_heads} = {width}"
        raise ValueError(f"rotary positions turn pairs and want an even head width, got {given}")
    angles = np.arange(config.max_length)[:, None] * 10000.0 ** (-np.arange(half) / half)
    table = np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)

    def rope(heads: Array, positions: Array) -> Array:
        """[B, H, T, K] at positions [B, T] or [1, T]; NaN from `max_length` on."""
        turns = embedding_lookup(table, positions)[:, None]  # [B, 1, T, K]
        cos, sin = turns[..., :half], turns[..., half:]
        first, second = heads[..., :half], heads[..., half:]
        return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)

    return rope
