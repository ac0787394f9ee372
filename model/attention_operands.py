"""Queries, keys and values made safe for masked products: 0 · NaN and 0 · ∞ are NaN, so neither may enter one.

A masked position has weight 0, and its key and value still go through the matrix products. What no query may see is
set to 0, and what some may not see is clipped to what the compute type holds. Nothing is done without a mask.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Float

from model.masks import check_mask
from model.matmul import rounded
from model.shapes import Array

MAX_QK = 2.0**56
"""Queries and keys are clipped to ± this under a mask: float32 holds the score of any two that are 65,536 wide."""


class Operands(NamedTuple):
    """Queries, keys, values and mask, as the products of attention take them."""

    query: Float[Array, "B H T K"]
    key: Float[Array, "B G S K"]
    value: Float[Array, "B G S Kv"]
    dtype: Any
    """The type that both products are computed in."""


def prepare_operands(query: Array, key: Array, value: Array, mask: Array | None, dtype, kv_prepared: bool) -> Operands:
    """Prepare `query`, `key` and `value` for the products of attention under `mask`.

    Keys and values in cache format (`kv_prepared`) stay as they are, and the products are computed in the type that
    they are kept in, which may be wider than `dtype`; the query is rounded to `dtype` then.

    Raises:
      TypeError, ValueError: as `model.masks.check_mask`.
    """
    if mask is not None:
        scores_shape = (*query.shape[:3], key.shape[2])
        check_mask(mask, scores_shape)
        query = clip_to_finite(query, dtype, factor=True)
        if not kv_prepared:
            key, value = _zero_masked_kv(mask, scores_shape, key, value)
            key, value = clip_to_finite(key, dtype, factor=True), clip_to_finite(value, dtype)
    if kv_prepared:
        return Operands(rounded(query, dtype), key, value, key.dtype)
    return Operands(query, key, value, dtype)


def clip_to_finite(x: Float[Array, "..."], dtype, factor: bool = False) -> Float[Array, "..."]:
    """Clip `x` to what `dtype` holds; the factors of a score, queries and keys, to `MAX_QK` as well.

    What is finite must stay finite, rounded and multiplied: infinity at a masked position times the weight 0 is NaN.
    """
    largest = float(jnp.finfo(dtype).max)
    largest = min(largest, MAX_QK) if factor else largest
    return x if largest >= float(jnp.finfo(x.dtype).max) else jnp.clip(x, -largest, largest)


def check_heads(query: Array, key: Array, value: Array | None = None) -> None:
    """Raises ValueError unless the shapes are (B, H, T, K), (B, G, S, K) and (B, G, S, Kv), and G divides H."""
    shapes = f"query {query.shape}, key {key.shape}" + ("" if value is None else f", value {value.shape}")
    if query.ndim != 4 or key.ndim != 4 or (value is not None and value.ndim != 4):
        raise ValueError(f"attention wants query (B, H, T, K), key (B, G, S, K), value (B, G, S, Kv); got {shapes}")
    if query.shape[0] != key.shape[0] or query.shape[-1] != key.shape[-1]:
        raise ValueError(f"query and key must agree in batch and head width; got {shapes}")
    if value is not None and value.shape[:3] != key.shape[:3]:
        raise ValueError(f"key and value must agree in batch, heads and length; got {shapes}")
    if query.shape[1] % key.shape[1]:
        raise ValueError(f"the key/value heads must divide the query heads; got {shapes}")


def _zero_masked_kv(mask: Array, scores_shape: tuple[int, ...], key: Array, value: Array) -> tuple[Array, Array]:
    """Zero the keys and values at the positions that no query of their group may see."""
    heads, groups = scores_shape[1], key.shape[1]
    seen = mask.any(axis=2)
    if mask.shape[1] == heads and heads != groups:
        seen = seen.reshape(seen.shape[0], groups, heads // groups, seen.shape[-1]).any(axis=2)
    seen = seen[..., None]
    return jnp.where(seen, key, 0), jnp.where(seen, value, 0)
