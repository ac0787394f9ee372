"""The loop of greedy decoding and of sampling: one token for each row, again and again, on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from decoding.step import Cache, Decoded, Step, check_room


def decode(
    step: Step,
    cache: Cache,
    first: Int[Array, " B"],
    choose: Callable[[Int[Array, ""], Float[Array, "B V"]], Int[Array, " B"]],
    *,
    max_tokens: int,
    end_id: int,
    pad_id: int,
) -> Decoded:
    """The tokens that `choose(index, logits)` takes, until every row has ended or has `max_tokens` tokens.

    A row does not depend on its neighbours, and one that has ended stays what it is.

    Raises:
      ValueError: more tokens than a `BoundedStep` has room for.
    """
    check_room(step, max_tokens)

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
        token = jnp.where(finished, pad_id, choose(loop.index, logits).astype(first.dtype))
        tokens = loop.decoded.tokens.at[:, loop.index].set(token)
        return Loop(loop.index + 1, cache, token, Decoded(tokens, finished | (token == end_id)))

    rows = first.shape[0]
    nothing = Decoded(jnp.full((rows, max_tokens), pad_id, first.dtype), jnp.zeros(rows, bool))
    return jax.lax.while_loop(running, advance, Loop(jnp.int32(0), cache, first, nothing)).decoded
