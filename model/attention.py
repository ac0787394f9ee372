"""Scaled dot-product attention and its parts: softmax(Q Kᵀ / √d_k) V (theory, section 2; the paper, section 3.2.1)."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

from model.dropout import Dropout, dropout
from model.masks import check_mask
from model.matmul import matmul, rounded
from model.shapes import Array


class Attention(NamedTuple):
    """What attention gives: the output y_i = Σ_j A_ij v_j, and the weights A themselves (before any dropout)."""

    output: Float[Array, "B H T Kv"]
    weights: Float[Array, "B H T S"]


def attention_scores(
    query: Float[Array, "B H T K"], key: Float[Array, "B G S K"], dtype="float32"
) -> Float[Array, "B H T S"]:
    """q_iᵀ k_j / √d_k. Dividing keeps the variance at 1 for every d_k, so that the softmax does not saturate.

    Query head h reads key head h // (H / G); keys are not repeated in memory. A bias (ALiBi, relative positions) may
    be added to the result before `attention_weights`: it is not scaled.

    Raises:
      ValueError: G does not divide H, or the shapes disagree otherwise.
    """
    _check_heads(query, key)
    scale = 1.0 / math.sqrt(query.shape[-1])
    grouped = matmul(_group_queries(query, key.shape[1]), jnp.swapaxes(key, -1, -2), dtype)
    return grouped.reshape(*query.shape[:3], key.shape[2]) * scale


def attention_weights(
    scores: Float[Array, "B H T S"], mask: Bool[Array, "..."] | None = None
) -> Float[Array, "B H T S"]:
    """The softmax over the visible keys; exactly 0 at the others, and all 0 in a row that sees nothing.

    The mask is applied twice. Before the softmax, so that hidden scores, NaN included, take no part; after it, so that
    a row without visible keys is 0 and not uniform, and so that no cotangent, however large, flows back to a hidden
    score (masking only once leaves 0 · NaN in the backward pass).
    """
    if mask is None:
        return jax.nn.softmax(scores, axis=-1)
    check_mask(mask, scores.shape)
    visible = jnp.where(mask, scores, jnp.finfo(scores.dtype).min)
    return jnp.where(mask, jax.nn.softmax(visible, axis=-1), 0)


def scaled_dot_product_attention(
    query: Float[Array, "B H T K"],
    key: Float[Array, "B G S K"],
    value: Float[Array, "B G S Kv"],
    mask: Bool[Array, "..."] | None = None,
    *,
    drop: Dropout | None = None,
    dtype="float32",
    kv_prepared: bool = False,
) -> Attention:
    """softmax(Q Kᵀ / √d_k) V over the keys that `mask` lets each query see.

    Args:
      query, key, value: heads of queries, keys and values; G divides H (grouped queries; G = H otherwise).
      mask: boolean, True = may attend, each axis of (B, H, T, S) full or 1. None: everything is visible.
      drop: dropout on the weights, at `drop.attention_rate`.
      dtype: the compute type of both products; the softmax is float32 always.
      kv_prepared: keys and values have been through `clip_to_finite` and are rounded to `dtype`, and are 0 or finite where
        nobody looks, as a cache keeps them: they need not be made so again, which would copy the whole cache for every
        new token. The products are computed in their own type, the one they are kept in, which may be wider.

    Returns:
      The output, and the weights. A query that sees nothing gets exactly 0. A key that no query sees may hold
      anything, NaN included, and one that some queries do not see anything finite, without changing a bit elsewhere.

    Raises:
      TypeError: the mask is not boolean.
      ValueError: shapes that do not fit, with both named.
    """
    _check_heads(query, key, value)
    if mask is not None:
        scores_shape = (*query.shape[:3], key.shape[2])
        check_mask(mask, scores_shape)
        query = clip_to_finite(query, dtype, factor=True)
        if not kv_prepared:
            key, value = _zero_masked_kv(mask, scores_shape, key, value)
            key, value = clip_to_finite(key, dtype, factor=True), clip_to_finite(value, dtype)
    product = key.dtype if kv_prepared else dtype
    query = rounded(query, dtype) if kv_prepared else query
    weights = attention_weights(attention_scores(query, key, product), mask)
    kept = weights if drop is None else dropout(weights, drop.key, drop.attention_rate)
    kept = rounded(kept, dtype) if kv_prepared else kept
    output = matmul(_group_queries(kept, key.shape[1]), value, product)
    return Attention(output.reshape(*query.shape[:3], value.shape[-1]), weights)


def _group_queries(x: Float[Array, "B H T N"], groups: int) -> Float[Array, "B G RT N"]:
    """[B, H, T, N] -> [B, G, H/G · T, N]: the queries that share a key head become rows of one product."""
    batch, heads, length, width = x.shape
    return x.reshape(batch, groups, heads // groups * length, width)


def _zero_masked_kv(mask: Array, scores_shape: tuple[int, ...], key: Array, value: Array) -> tuple[Array, Array]:
    """Keys and values with 0 at the positions that no query of their group may see."""
    heads, groups = scores_shape[1], key.shape[1]
    seen = mask.any(axis=2)
    if mask.shape[1] == heads and heads != groups:
        seen = seen.reshape(seen.shape[0], groups, heads // groups, seen.shape[-1]).any(axis=2)
    seen = seen[..., None]
    return jnp.where(seen, key, 0), jnp.where(seen, value, 0)


MAX_QK = 2.0**56
"""Queries and keys are clipped to ± this under a mask: float32 holds the score of any two that are 65,536 wide."""


def clip_to_finite(x: Float[Array, "..."], dtype, factor: bool = False) -> Float[Array, "..."]:
    """`x` clipped to what `dtype` holds; the factors of a score, queries and keys, to `MAX_QK` as well.

    What is finite must stay finite, rounded and multiplied, because a hidden infinity would meet a 0 and be NaN.
    """
    largest = float(jnp.finfo(dtype).max)
    largest = min(largest, MAX_QK) if factor else largest
    return x if largest >= float(jnp.finfo(x.dtype).max) else jnp.clip(x, -largest, largest)


def _check_heads(query: Array, key: Array, value: Array | None = None) -> None:
    shapes = f"query {query.shape}, key {key.shape}" + ("" if value is None else f", value {value.shape}")
    if query.ndim != 4 or key.ndim != 4 or (value is not None and value.ndim != 4):
        raise ValueError(f"attention wants query (B, H, T, K), key (B, G, S, K), value (B, G, S, Kv); got {shapes}")
    if query.shape[0] != key.shape[0] or query.shape[-1] != key.shape[-1]:
        raise ValueError(f"query and key must agree in batch and head width; got {shapes}")
    if value is not None and value.shape[:3] != key.shape[:3]:
        raise ValueError(f"key and value must agree in batch, heads and length; got {shapes}")
    if query.shape[1] % key.shape[1]:
        raise ValueError(f"the key/value heads must divide the query heads; got {shapes}")
