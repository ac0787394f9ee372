"""A checksum for each array of a state, computed where the array is: on its devices, in whatever pieces it lies there.

Storage returns what was written, or so it says: a flipped bit in a checkpoint would be restored without a word, and
trained on.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, UInt32


def checksums(tree: Any) -> dict[str, int]:
    """Return a checksum for each leaf by its path: {"params/encoder/scale": 2774153429, ...}.

    Equal for equal bits, however the array is sharded. A change of one element changes it always, and another one with
    all but a chance of 2^-32.
    """
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    paths = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves]
    sums = jax.device_get([_checksum(leaf) for _, leaf in leaves])
    return {path: int(each) for path, each in zip(paths, sums, strict=True)}


@jax.jit
def _checksum(x: Array) -> UInt32[Array, ""]:
    """Σ_i h(x_i, i) mod 2^32 over the bits of the elements as integers, i their place in the whole array.

    Integers add up to the same in any order, so the pieces of a sharded array may be summed where they are. For each i
    h is one-to-one in x_i: a multiplication by an odd number and a shift that is xored back lose nothing (the finalizer
    of MurmurHash3).
    """
    if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    if x.dtype == jnp.bool_:
        x = x.astype(jnp.uint8)
    narrow = {1: jnp.uint8, 2: jnp.uint16}.get(x.dtype.itemsize, jnp.uint32)
    bits = lax.bitcast_convert_type(x, narrow).astype(jnp.uint32)  # of 8 bytes: two numbers, along a last axis
    place = jnp.zeros(bits.shape, jnp.uint32)
    for axis in range(bits.ndim):
        stride = math.prod(bits.shape[axis + 1 :]) % 2**32
        place += lax.broadcasted_iota(jnp.uint32, bits.shape, axis) * jnp.uint32(stride)
    mixed = bits ^ (place * jnp.uint32(0x9E3779B1))
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        mixed = (mixed ^ (mixed >> shift)) * jnp.uint32(factor)
    return jnp.sum(mixed, dtype=jnp.uint32)
