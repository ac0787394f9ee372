"""Positional encodings: sinusoids added to the embeddings, and rotations of queries and keys."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from model.config import BlockConfig
from model.embedding import embedding_lookup
from model.shapes import Array

PositionFn = Callable[[Float[Array, "B H T K"], Int[Array, "#B T"]], Float[Array, "B H T K"]]
"""(head vectors, their positions) -> head vectors, applied to queries and keys: rotary positions are one."""


def sinusoidal_positions(length: int, d_model: int) -> Float[np.ndarray, "length D"]:
    """PE(t, 2i) = sin(t / 10000^(2i/d_model)), PE(t, 2i+1) = cos(t / 10000^(2i/d_model)) (Vaswani et al. 2017, §3.5).

    Sine and cosine are interleaved; for odd d_model the last column is a sine. Angles are computed in float64 and the
    result is cast to float32, so all rows differ also where the model computes in bfloat16 (there 255 and 256 and 257
    would be two numbers).
    """
    frequencies = 10000.0 ** (-np.arange(0, d_model, 2, dtype=np.float64) / d_model)
    angles = np.arange(length, dtype=np.float64)[:, None] * frequencies[None, :]
    interleaved = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, -1)
    return interleaved[:, :d_model].astype(np.float32)


def rotary_positions(config: BlockConfig) -> PositionFn:
    """Each pair (x_i, x_{i + K/2}) of a query or key rotated by position · 10000^(−2i/K) (Su et al. 2021).

    The score of a query and a key then depends on what they are and on the distance between them. Cosines and sines
    come from a table of `config.max_length` rows, computed in float64: inside the program they would be computed anew
    for every head and row.

    Returns:
      The rotation of head vectors [B, H, T, K] at positions [B or 1, T]; NaN from `max_length` on.

    Raises:
      ValueError: heads of odd width K, which have no pairs.
    """
    width, half = config.key_width, config.key_width // 2
    if width % 2:
        given = f"d_k={width}" if config.d_k else f"d_model={config.d_model} / num_heads={config.num_heads} = {width}"
        raise ValueError(f"rotary positions turn pairs and want an even head width, got {given}")
    angles = np.arange(config.max_length)[:, None] * 10000.0 ** (-np.arange(half) / half)
    table = np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)

    def rotate(heads: Float[Array, "B H T K"], positions: Int[Array, "#B T"]) -> Float[Array, "B H T K"]:
        turns = embedding_lookup(table, positions)[:, None]  # [B, 1, T, K]
        cos, sin = turns[..., :half], turns[..., half:]
        first, second = heads[..., :half], heads[..., half:]
        return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)

    return rotate
