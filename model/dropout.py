"""Dropout as a function of a key and a rate that may be traced, with as few random bits as it needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Float, Key, Num

from model.shapes import Array

LEVELS = 2**16
"""Sixteen random bits decide over an element, so rates are multiples of 1/65,536: making bits is what dropout costs."""


class Dropout(NamedTuple):
    """A key and the rates of dropout. `None` disables dropout, and no random bits are made.

    Rates are arrays or numbers in [0, 1): being data, they may differ between the members of a `vmap`.
    """

    key: Key[Array, ""]
    rate: Num[Array, ""] | float | None
    """For sublayer outputs and embedding sums (Vaswani et al. 2017, §5.4); None: not there."""
    attention_rate: Num[Array, ""] | float | None = None
    """For attention weights; None: not there."""

    def at(self, site: int | Num[Array, ""]) -> Dropout:
        """Derive a key for one layer or one place in it: masks are never shared."""
        return self._replace(key=jax.random.fold_in(self.key, site))


def dropout(x: Float[Array, "..."], key: Key[Array, ""], rate: Num[Array, ""] | float | None) -> Float[Array, "..."]:
    """Set each element of `x` to 0 with probability `rate`, and divide the others by 1 − rate.

    The rate is rounded to a multiple of 1/65,536 and the division uses the rounded rate, so the mean is kept exactly.
    Masks depend on key and shape alone, not on how the array is spread over devices.
    """
    if rate is None:
        return x
    kept_levels = jnp.round((1.0 - jnp.asarray(rate, jnp.float32)) * LEVELS)
    keep = _bits16(key, x.shape).astype(jnp.int32) < kept_levels.astype(jnp.int32)
    return jnp.where(keep, x * (LEVELS / jnp.maximum(kept_levels, 1.0)).astype(x.dtype), 0)


def _bits16(key: Array, shape: tuple[int, ...]) -> Array:
    """Draw random uint16 of `shape`, two from each 32-bit word (threefry makes no fewer for 16 bits than for 32)."""
    last = shape[-1] if shape else 1
    words = jax.random.bits(key, (*shape[:-1], math.ceil(last / 2)), jnp.uint32)
    pairs = lax.bitcast_convert_type(words, jnp.uint16)
    return pairs.reshape(*words.shape[:-1], 2 * words.shape[-1])[..., :last].reshape(shape)


def make_dropout(
    make_key: Callable[[], Key[Array, ""]],
    rate: Num[Array, ""] | float | None,
    attention_rate: Num[Array, ""] | float | None,
) -> Dropout | None:
    """Return dropout at these rates with the key of `make_key()`; None, and no key asked for, if both are None."""
    return None if rate is None and attention_rate is None else Dropout(make_key(), rate, attention_rate)
