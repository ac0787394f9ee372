"""Scaled dot-product attention, softmax(Q Kᵀ / √d_k) V, and its parts (Vaswani et al. 2017, §3.2.1)."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

from model.attention_operands import check_heads, prepare_operands
from model.dropout import Dropout, dropout
from model.masks import check_mask
from model.matmul import matmul, rounded
from model.shapes import Array


class Attention(NamedTuple):
    """The output y_i = Σ_j A_ij v_j, and the weights A themselves (before any dropout)."""

    output: Float[Array, "B H T Kv"]
    weights: Float[Array, "B H T S"]


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
    """softmax(Q Kᵀ / √d_k) V over the keys that `mask` lets each query attend to.

    Args:
      query, key, value: heads of queries, keys and values; G divides H (grouped-query attention; G = H otherwise).
      mask: boolean, True = may attend, each axis of (B, H, T, S) full or 1. None: everything is visible.
      drop: dropout on the weights, at `drop.attention_rate`.
      dtype: the compute type of both products; the softmax is float32 always.
      kv_prepared: key and value are in cache format (`model.cache.to_cache_format`): clipped, rounded to `dtype`, zero
        at masked positions. Preparing them again would copy the whole cache for every new token.

    Returns:
      The output, and the weights. A query that sees nothing gets exactly 0. A key that no query sees may hold
      anything, NaN included, and one that some queries do not see anything finite, without changing a bit elsewhere.

    Raises:
      TypeError: the mask is not boolean.
      ValueError: shapes that do not fit, with both named.
    """
    check_heads(query, key, value)
    query, key, value, product_dtype = prepare_operands(query, key, value, mask, dtype, kv_prepared)
    weights = attention_weights(attention_scores(query, key, product_dtype), mask)
    dropped = weights if drop is None else dropout(weights, drop.key, drop.attention_rate)
    dropped = rounded(dropped, dtype) if kv_prepared else dropped
    return Attention(attention_output(dropped, value, product_dtype), weights)


def attention_scores(
    query: Float[Array, "B H T K"], key: Float[Array, "B G S K"], dtype="float32"
) -> Float[Array, "B H T S"]:
    """q_iᵀ k_j / √d_k. Dividing keeps the variance at 1 for every d_k, so that the softmax does not saturate.

    Query head h reads key head h // (H / G); keys are not repeated in memory. A bias (ALiBi, relative positions) may
    be added to the result before `attention_weights`: it is not scaled.

    Raises:
      ValueError: G does not divide H, or the shapes disagree otherwise.
    """
    check_heads(query, key)
    grouped = matmul(_group_queries(query, key.shape[1]), jnp.swapaxes(key, -1, -2), dtype)
    return grouped.reshape(*query.shape[:3], key.shape[2]) * (1.0 / math.sqrt(query.shape[-1]))


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


def attention_output(
    weights: Float[Array, "B H T S"], value: Float[Array, "B G S Kv"], dtype="float32"
) -> Float[Array, "B H T Kv"]:
    """Σ_j A_ij v_j: for each query the mean of the values, by its weights."""
    output = matmul(_group_queries(weights, value.shape[1]), value, dtype)
    return output.reshape(*weights.shape[:3], value.shape[-1])


def _group_queries(x: Float[Array, "B H T N"], groups: int) -> Float[Array, "B G RT N"]:
    """[B, H, T, N] -> [B, G, H/G · T, N]: the queries that share a key head become rows of one product."""
    batch, heads, length, width = x.shape
    return x.reshape(batch, groups, heads // groups * length, width)
