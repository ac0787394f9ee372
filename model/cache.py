"""What a model remembers of the tokens before, so that the next one costs one token: the keys and values of its layers.

A cache has as many slots as it may ever hold tokens, and grows from the left: `extend` of a model fills the next slots,
with a whole prompt or with one token. Slots are the same for all rows; rows of different length leave holes, which
nobody sees, and positions are counted by row without the holes. Every array but `used` has the batch axis first, so
that rows are picked (beam search) by indexing every leaf alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Bool, Float, Int

from model.attention import within_reach
from model.config import BlockConfig
from model.multi_head import KeyValue
from model.shapes import Array


class Cache(NamedTuple):
    """The self-attention of a stack, `N` slots long."""

    layers: tuple[KeyValue, ...]
    """For each of L layers keys [B, G, N, K] and values [B, G, N, Kv], in the compute type. Each layer has arrays of
    its own: in a compiled loop a slot is then written in place, and the products read the cache where it lies; of one
    array for all, each layer would be cut out anew for every token."""
    seen: Bool[Array, "B N"]
    """Which slots hold a token."""
    length: Int[Array, " B"]
    """Tokens of each row so far, and so the position of its next one."""
    used: Int[Array, ""]
    """Slots that are taken, holes included."""


class Slots(NamedTuple):
    """Where T new tokens go, and what they see."""

    positions: Int[Array, "B T"]
    mask: Bool[Array, "B 1 T N"]
    """The tokens before, and the new ones up to itself."""
    valid: Bool[Array, "B T"]
    start: Int[Array, ""]
    """The first of their slots."""
    room: Bool[Array, ""]
    """False: there were not as many slots left."""


def empty_cache(config: BlockConfig, num_layers: int, batch: int, size: int) -> Cache:
    """A cache of `size` slots that holds nothing.

    Keys and values are kept in the compute type, which loses nothing: the products round their operands to it anyway.

    Raises:
      ValueError: more slots than the model has positions.
    """
    if not 0 < size <= config.max_length:
        raise ValueError(f"a cache must have 1 to max_length={config.max_length} slots, got {size}")
    keys = jnp.zeros((batch, config.kv_heads, size, config.key_width), config.dtype)
    values = jnp.zeros((batch, config.kv_heads, size, config.value_width), config.dtype)
    nothing = (jnp.zeros((batch, size), bool), jnp.zeros(batch, jnp.int32), jnp.int32(0))
    return Cache((KeyValue(keys, values),) * num_layers, *nothing)


def claim_slots(cache: Cache, valid: Bool[Array, "B T"]) -> tuple[Cache, Slots]:
    """The next T slots, for tokens where `valid` and for holes where not; and the cache with them taken.

    Raises:
      ValueError: fewer than T are left, outside of a compiled program. Inside of one the number is not known when it is
        traced: `Slots.room` tells.
    """
    length, size = valid.shape[1], cache.seen.shape[1]
    if length > size or (not isinstance(cache.used, jax.core.Tracer) and int(cache.used) + length > size):
        raise ValueError(f"{length} more tokens do not fit into a cache of {size} slots, {cache.used} of them used")
    seen = lax.dynamic_update_slice_in_dim(cache.seen, valid, cache.used, axis=1)
    before = jnp.arange(size)[None] <= (cache.used + jnp.arange(length))[:, None]
    counts = jnp.cumsum(valid, axis=1, dtype=jnp.int32)
    slots = Slots(
        positions=jnp.maximum(cache.length[:, None] + counts - 1, 0),  # a hole's is that of the token before
        mask=seen[:, None, None, :] & before[None, None],
        valid=valid,
        start=cache.used,
        room=cache.used + length <= size,
    )
    return cache._replace(seen=seen, length=cache.length + counts[:, -1], used=cache.used + length), slots


def stored(memory: KeyValue, valid: Bool[Array, "B S"], dtype) -> KeyValue:
    """Keys and values as a cache keeps them: rounded to the compute type once, and 0 where there is no token."""
    present = valid[:, None, :, None]
    key, value = (jnp.where(present, x, 0) for x in memory)
    return KeyValue(within_reach(key, dtype, factor=True).astype(dtype), within_reach(value, dtype).astype(dtype))


def writer(past: KeyValue, slots: Slots, dtype) -> Callable[[KeyValue], KeyValue]:
    """new -> `past` with the keys and values `new` of T tokens in their slots."""

    def write(new: KeyValue) -> KeyValue:
        new = stored(new, slots.valid, dtype)
        return KeyValue(*(lax.dynamic_update_slice_in_dim(old, x, slots.start, axis=2) for old, x in zip(past, new)))

    return write


def poisoned(x: Float[Array, "B T D"], slots: Slots) -> Float[Array, "B T D"]:
    """`x`, or NaN where there is no room: a token too many makes everything after it NaN and nothing merely wrong."""
    return jnp.where(slots.room, x, jnp.nan)
