"""Greedy decoding: the most probable token, again and again."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from decoding.step import Cache, Decoded, Step, check_room, without_padded_ids


def greedy(
    step: Step,
    cache: Cache,
    first: Int[Array, " B"],
    *,
    max_tokens: int,
    end_id: int,
    pad_id: int,
    vocab_size: int | None = None,
) -> Decoded:
    """The most probable token at each step, until every row has ended or has `max_tokens` tokens.

    To be compiled whole: the loop is on the device. A row does not depend on its neighbours, and `finished` rows stay
    what they are.

    Args:
      step: the model, one token at a time.
      cache: as `step` takes it, before the first token.
      first: the token that starts each row (BOS, or the last of a prompt).
      vocab_size: ids from here on are never chosen, where there are more logits than tokens.

    Raises:
      ValueError: more tokens than a `BoundedStep` has room for; a vocabulary larger than the logits.
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
        best = jnp.argmax(without_padded_ids(logits, vocab_size), axis=-1)
        token = jnp.where(finished, pad_id, best.astype(first.dtype))
        tokens = loop.decoded.tokens.at[:, loop.index].set(token)
        return Loop(loop.index + 1, cache, token, Decoded(tokens, finished | (token == end_id)))

    rows = first.shape[0]
    nothing = Decoded(jnp.full((rows, max_tokens), pad_id, first.dtype), jnp.zeros(rows, bool))
    return jax.lax.while_loop(running, advance, Loop(jnp.int32(0), cache, first, nothing)).decoded
