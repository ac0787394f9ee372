"""Greedy decoding: the most probable token, again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

Cache = Any
"""What a step needs to know of the tokens before: any pytree of arrays."""
Step = Callable[[Cache, Int[Array, " B"]], tuple[Cache, Float[Array, "B V"]]]
"""(cache, newest token of each row) -> (cache, logits of the token after it)."""


class Decoded(NamedTuple):
    """What decoding gives."""

    tokens: Int[Array, "B N"]
    """Without the first token; after the end token only padding."""
    finished: Bool[Array, " B"]
    """False where a row had no end after N tokens."""


def greedy(step: Step, cache: Cache, first: Int[Array, " B"], *, max_tokens: int, end_id: int, pad_id: int) -> Decoded:
    """The most probable token at each step, until every row has ended or has `max_tokens` tokens.

    To be compiled whole: the loop is on the device. A row does not depend on its neighbours, and `finished` rows stay
    what they are.

    Args:
      step: the model, one token at a time.
      cache: as `step` takes it, before the first token.
      first: the token that starts each row (BOS).
    """

    class Loop(NamedTuple):
        index: Array
        cache: Cache
        newest: Array
        decoded: Decoded

    def running(loop: Loop) -> Array:
        return (loop.index < max_tokens) & ~loop.decoded.finished.all()

    def advance(loop: Loop) -> Loop:
        cache, logits = step(loop.cache, loop.newest)
        finished = loop.decoded.finished
        token = jnp.where(finished, pad_id, jnp.argmax(logits, axis=-1).astype(first.dtype))
        tokens = loop.decoded.tokens.at[:, loop.index].set(token)
        return Loop(loop.index + 1, cache, token, Decoded(tokens, finished | (token == end_id)))

    rows = first.shape[0]
    nothing = Decoded(jnp.full((rows, max_tokens), pad_id, first.dtype), jnp.zeros(rows, bool))
    return jax.lax.while_loop(running, advance, Loop(jnp.int32(0), cache, first, nothing)).decoded
