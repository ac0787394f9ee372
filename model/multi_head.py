"""Multi-head attention: Concat(head_1 … head_H) W^O with head_h = Attention(X W_h^Q, M W_h^K, M W_h^V).

X are the positions that ask and M those that answer: the same in self-attention, the encoder's output in the decoder's
second attention (theory, section 3; the paper, section 3.2.2).
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
from model.shapes import Array, Params

PositionFn = Callable[[Float[Array, "B H T K"], Int[Array, "#B T"]], Float[Array, "B H T K"]]
"""A function of head vectors and their positions, applied to queries and keys: the place for rotary positions."""


class KeyValue(NamedTuple):
    """What answers the queries: the memory M, projected and split into heads."""

    key: Float[Array, "B G S K"]
    """Rotated, if the attention is."""
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


def multi_head_attention(
    params: Params,
    x: Float[Array, "B T D"],
    memory: Float[Array, "B S D"] | KeyValue,
    mask: Bool[Array, "..."] | None = None,
    *,
    num_heads: int,
    num_kv_heads: int,
    rope: PositionFn | None = None,
    positions: Int[Array, "#B T"] | None = None,
    drop: Dropout | None = None,
    dtype="float32",
) -> Attention:
    """Queries from `x`, keys and values from `memory` (`x` again in self-attention), H heads, one output projection.

    Args:
      memory: what is attended to; or its keys and values out of a cache, which `model.cache.kv_prepared` made ready.
      mask: boolean, True = may attend, each axis of (B, H, T, S) full or 1.
      rotate, positions: `rope(heads, positions)` is applied to queries and keys of self-attention.
      drop: dropout on the weights.

    Returns:
      output [B, T, D] and the weights [B, H, T, S].
    """
    query = split_heads(linear(params["query"], x, dtype), num_heads)
    query = query if rope is None else rope(query, positions)
    kv_prepared = isinstance(memory, KeyValue)
    if not kv_prepared:
        memory = project_kv(params, memory, num_kv_heads=num_kv_heads, rope=rope, positions=positions, dtype=dtype)
    heads, weights = scaled_dot_product_attention(query, *memory, mask, drop=drop, dtype=dtype, kv_prepared=kv_prepared)
    return Attention(linear(params["output"], merge_heads(heads), dtype), weights)
