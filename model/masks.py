"""Masks: boolean, True = may attend, always of rank 4 [B, H, T, S] with 1 where all share; combined by `and`.

Nothing is ever added to the scores. Additive masks overflow in narrow types, un-hide keys when two of them meet, and
leave open whether True hides or shows; a boolean mask can do none of that.
"""

from __future__ import annotations

from functools import reduce

import jax.numpy as jnp
from jaxtyping import Bool, Int

from model.shapes import Array

PAD_ID = 0
"""The token id that fills up a row. The models take a source token of this id to be no token."""


def causal_mask(num_queries: int, num_keys: int | None = None) -> Bool[Array, "1 1 T S"]:
    """Query i sees key j when j ≤ i + (S − T): no query sees the future (Vaswani et al. 2017, §3.2.3).

    With fewer queries than keys the two align at the end, as in decoding, where the queries are the newest positions:
    one query sees all keys. `num_keys` defaults to `num_queries`.
    """
    num_keys = num_queries if num_keys is None else num_keys
    return jnp.tri(num_queries, num_keys, k=num_keys - num_queries, dtype=bool)[None, None]


def padding_mask(valid: Bool[Array, "B S"]) -> Bool[Array, "B 1 1 S"]:
    """Every query sees the keys that are `valid`, and no padding."""
    return valid[:, None, None, :]


def segment_mask(query_segments: Int[Array, "B T"], key_segments: Int[Array, "B S"]) -> Bool[Array, "B 1 T S"]:
    """A query sees the keys of its own segment: documents in one row do not attend to each other."""
    return query_segments[:, None, :, None] == key_segments[:, None, None, :]


def combine_masks(*masks: Bool[Array, "..."] | None) -> Bool[Array, "..."] | None:
    """Combine masks by logical and; a mask None hides nothing.

    Raises:
      TypeError: a mask is not boolean.
      ValueError: a mask is not of rank 4, or two do not broadcast.
    """
    given = [check_mask(mask) for mask in masks if mask is not None]
    try:
        return reduce(jnp.logical_and, given) if given else None
    except (TypeError, ValueError) as error:
        raise ValueError(f"masks do not fit together: shapes {[mask.shape for mask in given]}") from error


def check_mask(mask: Array, scores_shape: tuple[int, ...] | None = None) -> Array:
    """Return `mask` after checking that it is boolean, of rank 4, and broadcasts to `scores_shape` (B, H, T, S).

    Raises:
      TypeError: not boolean (an additive mask, or integers whose polarity is anybody's guess).
      ValueError: wrong rank or shape; both shapes are named.
    """
    if jnp.result_type(mask) != jnp.bool_:
        raise TypeError(f"a mask must be boolean, True = may attend; got {jnp.result_type(mask)}")
    shape = tuple(mask.shape)
    wanted = "(B, H, T, S)" if scores_shape is None else f"(B, H, T, S) = {scores_shape}"
    fits = len(shape) == 4 and (
        scores_shape is None or all(given in (1, full) for given, full in zip(shape, scores_shape, strict=True))
    )
    if not fits:
        raise ValueError(f"a mask must have shape {wanted}, with 1 where all share; got {shape}")
    return mask
