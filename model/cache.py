"""KV cache: the keys and values of each layer's self-attention, so that a decode step costs one token.

Slots fill from left to right, the same for all rows: a prefill takes as many as the prompt is long, a decode step one.
Padding takes masked slots, and positions count the real tokens of each row. Every array but `used` has the batch axis
first, so that rows are gathered (beam search) by indexing every leaf alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Bool, Float, Int

from model.attention_operands import clip_to_finite
from model.config import BlockConfig
from model.cpu_backend import cache_dtype
from model.matmul import rounded
from model.multi_head import KeyValue
from model.shapes import Array


class Cache(NamedTuple):
    """Cached keys and values of a stack's self-attention, `N` slots long."""

    layers: tuple[KeyValue, ...]
    """For each of L layers keys [B, G, N, K] and values [B, G, N, Kv], rounded to the compute type. Each layer has
    arrays of its own: in a compiled loop a slot is then written in place, and the products read the cache where it
    lies; of one array for all, each layer would be cut out anew for every token."""
    seen: Bool[Array, "B N"]
    """Which slots hold a token."""
    length: Int[Array, " B"]
    """Tokens of each row so far, and so the position of its next one."""
    used: Int[Array, ""]
    """Slots that are taken, holes included."""


class Slots(NamedTuple):
    """Slots of T new tokens, their positions, and their mask."""

    positions: Int[Array, "B T"]
    key_positions: Int[Array, "B N"]
    """Of the token in each slot, the new ones included; of no meaning where there is none."""
    mask: Bool[Array, "B 1 T N"]
    """The tokens before, and the new ones up to itself."""
    valid: Bool[Array, "B T"]
    start: Int[Array, ""]
    """The first of their slots."""
    fits: Bool[Array, ""]
    """False: there were not as many slots left."""


def empty_cache(config: BlockConfig, num_layers: int, batch: int, size: int) -> Cache:
    """Create an empty cache of `size` slots.

    Keys and values are kept rounded to the compute type, which loses nothing: products round their operands anyway.

    Raises:
      ValueError: more slots than the model has positions.
    """
    if not 0 < size <= config.max_length:
        raise ValueError(f"a cache must have 1 to max_length={config.max_length} slots, got {size}")
    dtype = cache_dtype(config.dtype)
    keys = jnp.zeros((batch, config.kv_heads, size, config.key_width), dtype)
    values = jnp.zeros((batch, config.kv_heads, size, config.value_width), dtype)
    nothing = (jnp.zeros((batch, size), bool), jnp.zeros(batch, jnp.int32), jnp.int32(0))
    return Cache((KeyValue(keys, values),) * num_layers, *nothing)


def allocate_slots(cache: Cache, valid: Bool[Array, "B T"]) -> tuple[Cache, Slots]:
    """Allocate the next T slots, for tokens where `valid` and holes where not; and return the cache with them taken.

    Raises:
      ValueError: fewer than T are left, outside of a compiled program. Inside of one the number is not known when it is
        traced: `Slots.fits` tells.
    """
    length, size = valid.shape[1], cache.seen.shape[1]
    if length > size or (not isinstance(cache.used, jax.core.Tracer) and int(cache.used) + length > size):
        raise ValueError(f"{length} more tokens do not fit into a cache of {size} slots, {cache.used} of them used")
    seen = lax.dynamic_update_slice_in_dim(cache.seen, valid, cache.used, axis=1)
    before = jnp.arange(size)[None] <= (cache.used + jnp.arange(length))[:, None]
    counts = jnp.cumsum(valid, axis=1, dtype=jnp.int32)
    slots = Slots(
        positions=jnp.maximum(cache.length[:, None] + counts - 1, 0),  # a hole's is that of the token before
        key_positions=jnp.maximum(jnp.cumsum(seen, axis=1, dtype=jnp.int32) - 1, 0),
        mask=seen[:, None, None, :] & before[None, None],
        valid=valid,
        start=cache.used,
        fits=cache.used + length <= size,
    )
    return cache._replace(seen=seen, length=cache.length + counts[:, -1], used=cache.used + length), slots


def to_cache_format(memory: KeyValue, valid: Bool[Array, "B S"], dtype) -> KeyValue:
    """Round keys and values to the compute type, once, and zero them where there is no token."""
    present = valid[:, None, :, None]
    key, value = (jnp.where(present, x, 0) for x in memory)
    key, value = clip_to_finite(key, dtype, factor=True), clip_to_finite(value, dtype)
    return KeyValue(*(rounded(x, dtype).astype(cache_dtype(dtype)) for x in (key, value)))


def cache_update(past: KeyValue, slots: Slots, dtype) -> Callable[[KeyValue], KeyValue]:
    """Write the keys and values of T tokens into their slots of `past`."""

    def write(new: KeyValue) -> KeyValue:
        new = to_cache_format(new, slots.valid, dtype)
        return KeyValue(*(lax.dynamic_update_slice_in_dim(old, x, slots.start, axis=2) for old, x in zip(past, new)))

    return write


BLOCK = 16
"""Slots that `reorder_cache` moves at once: fewer are moved for nothing, more make for fewer and larger copies."""


def reorder_cache(cache: Cache, parents: Int[Array, "B K"], same: Int[Array, " B"]) -> Cache:
    """Reorder the cache: row b · K + k takes what row b · K + `parents[b, k]` held, for B groups of K rows.

    Args:
      same: how many of its first slots all rows of each group hold alike. The hypotheses of a sentence have the prompt
        in common, and mostly all but their last few tokens.

    Only the slots from `same` on are moved, up to the last that is used: picking whole rows would copy the whole cache
    from memory to memory for every token.
    """
    groups, width = parents.shape
    # Slots are counted in int32, whatever type JAX gives to numbers by itself (jax_enable_x64).
    parents, same = jnp.asarray(parents, jnp.int32), jnp.asarray(same, jnp.int32)
    rows = (parents + width * jnp.arange(groups)[:, None]).reshape(-1)
    picked = cache._replace(seen=gather_rows(cache.seen, rows), length=gather_rows(cache.length, rows))
    size = cache.seen.shape[1]
    block = min(BLOCK, size)
    stays = (parents == jnp.arange(width)[None]).all(axis=1)
    blocks = jnp.where(stays, 0, jnp.maximum((cache.used - same + block - 1) // block, 0))
    ends = jnp.cumsum(blocks, dtype=jnp.int32)

    zero = jnp.int32(0)

    def move(number: Array, layers: tuple[KeyValue, ...]) -> tuple[KeyValue, ...]:
        group = jnp.searchsorted(ends, number, side="right").astype(jnp.int32)
        wanted = same[group] + block * (number - jnp.where(group > 0, ends[group - 1], 0))
        begin = jnp.minimum(wanted, size - block)  # the last block of all must not move a slot a second time
        due = (begin + jnp.arange(block) >= wanted)[None, None, :, None]

        def move_block(x: Array) -> Array:
            start = (width * group, zero, begin, zero)
            old = lax.dynamic_slice(x, start, (width, x.shape[1], block, x.shape[3]))
            return lax.dynamic_update_slice(x, jnp.where(due, gather_rows(old, parents[group]), old), start)

        return jax.tree.map(move_block, layers)

    return picked._replace(layers=lax.fori_loop(zero, ends[-1], move, cache.layers))


def gather_rows(x: Array, rows: Int[Array, " B"]) -> Array:
    """Gather `x[rows]`, all in range."""
    return jnp.asarray(x).at[rows].get(mode="promise_in_bounds")


def nan_on_overflow(x: Float[Array, "B T D"], slots: Slots) -> Float[Array, "B T D"]:
    """Return `x`, or NaN where the cache overflows, rather than silently wrong activations."""
    return jnp.where(slots.fits, x, jnp.nan)
