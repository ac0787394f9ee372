"""Multi-head attention: Concat(head_1 … head_H) W^O with head_h = Attention(X W_h^Q, M W_h^K, M W_h^V).

Queries come from X, keys and values from M: M = X in self-attention, the encoder's output in cross-attention (Vaswani
et al. 2017, §3.2.2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
from jaxtyping import Bool, Float, Int, Key

from model.attention import Attention, scaled_dot_product_attention
from model.dropout import Dropout
from model.initializers import init_linear
from model.linear import linear
from model.positions import PositionFn
from model.shapes import Array, Params

AttentionFn = Callable[..., Attention]
"""attention(query, key, value, mask, *, query_positions, key_positions, drop, dtype, kv_prepared) -> Attention.

The first four and the last three as `model.attention.scaled_dot_product_attention` has them. Positions are those of the
tokens in their sequence, [B or 1, T] and [B or 1, S] (in a cache: of each slot's token), None in cross-attention. Keys
and values come from a whole sequence in training, and from a cache, `kv_prepared`, in decoding."""


class KeyValue(NamedTuple):
    """Keys and values: the memory M, projected and split into heads."""

    key: Float[Array, "B G S K"]
    """Rotated, if there is a `rope`."""
    value: Float[Array, "B G S Kv"]


def init_multi_head_attention(
    key: Key[Array, ""], d_model: int, num_heads: int, num_kv_heads: int, d_k: int, d_v: int, bias: bool = False
) -> Params:
    """Four projections: "query" [D, H·K], "key" [D, G·K], "value" [D, G·Kv], "output" [H·Kv, D]."""
    keys = jax.random.split(key, 4)
    return {
        "query": init_linear(keys[0], d_model, num_heads * d_k, bias),
        "key": init_linear(keys[1], d_model, num_kv_heads * d_k, bias),
        "value": init_linear(keys[2], d_model, num_kv_heads * d_v, bias),
        "output": init_linear(keys[3], num_heads * d_v, d_model, bias),
    }


def split_heads(x: Float[Array, "B T HK"], num_heads: int) -> Float[Array, "B H T K"]:
    """The last axis cut into heads, and the heads moved before the positions."""
    batch, length, width = x.shape
    return x.reshape(batch, length, num_heads, width // num_heads).transpose(0, 2, 1, 3)


def merge_heads(x: Float[Array, "B H T K"]) -> Float[Array, "B T HK"]:
    """The inverse of `split_heads`: Concat(head_1 … head_H)."""
    batch, heads, length, width = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, length, heads * width)


def project_kv(
    params: Params,
    memory: Float[Array, "B S D"],
    *,
    num_kv_heads: int,
    rope: PositionFn | None = None,
    positions: Int[Array, "#B S"] | None = None,
    dtype="float32",
) -> KeyValue:
    """M W^K and M W^V by heads, the keys rotated to their `positions` if there is a `rope`."""
    key = split_heads(linear(params["key"], memory, dtype), num_kv_heads)
    value = split_heads(linear(params["value"], memory, dtype), num_kv_heads)
    return KeyValue(key if rope is None else rope(key, positions), value)


def standard_attention(
    query: Float[Array, "B H T K"],
    key: Float[Array, "B G S K"],
    value: Float[Array, "B G S Kv"],
    mask: Bool[Array, "..."] | None,
    *,
    query_positions: Int[Array, "#B T"] | None,
    key_positions: Int[Array, "#B S"] | None,
    **options,
) -> Attention:
    """Compute `scaled_dot_product_attention`; positions are unused: order enters by embeddings, rotation and mask."""
    return scaled_dot_product_attention(query, key, value, mask, **options)


def multi_head_attention(
    params: Params,
    x: Float[Array, "B T D"],
    memory: Float[Array, "B S D"] | KeyValue,
    mask: Bool[Array, "..."] | None = None,
    *,
    num_heads: int,
    num_kv_heads: int,
    attention: AttentionFn = standard_attention,
    rope: PositionFn | None = None,
    positions: Int[Array, "#B T"] | None = None,
    key_positions: Int[Array, "#B S"] | None = None,
    drop: Dropout | None = None,
    dtype="float32",
) -> Attention:
    """Queries from `x`, keys and values from `memory` (`x` again in self-attention), H heads, one output projection.

    Args:
      memory: what is attended to; or its keys and values from a cache, as `model.cache.to_cache_format` gives them.
      mask: boolean, True = may attend, each axis of (B, H, T, S) full or 1.
      attention: what is computed for each head, see `AttentionFn`.
      rope: `rope(heads, positions)` is applied to the queries and keys of self-attention.
      positions: of the queries, and of the keys too unless `key_positions` are given.
      drop: dropout on the weights.

    Returns:
      output [B, T, D] and the weights [B, H, T, S].
    """
    query = split_heads(linear(params["query"], x, dtype), num_heads)
    query = query if rope is None else rope(query, positions)
    kv_prepared = isinstance(memory, KeyValue)
    if not kv_prepared:
        memory = project_kv(params, memory, num_kv_heads=num_kv_heads, rope=rope, positions=positions, dtype=dtype)
    heads, weights = attention(
        query,
        *memory,
        mask,
        query_positions=positions,
        key_positions=positions if key_positions is None else key_positions,
        drop=drop,
        dtype=dtype,
        kv_prepared=kv_prepared,
    )
    return Attention(linear(params["output"], merge_heads(heads), dtype), weights)
