"""The loop of greedy decoding and of sampling: one token for each row, again and again, on the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from decoding.step import Cache, Decoded, Step, check_room, is_defined, suppressed
from model.shapes import Array


def decode(
    step: Step,
    cache: Cache,
    first: Int[Array, " B"],
    choose: Callable[[Int[Array, ""], Float[Array, "B V"]], Int[Array, " B"]],
    *,
    max_tokens: int,
    end_id: int,
    pad_id: int,
    vocab_size: int | None,
    suppress_ids: Sequence[int],
) -> Decoded:
    """Decode the tokens that `choose(index, logits)` takes, until every row has ended or has `max_tokens` tokens.

    A row does not depend on its neighbours, and one that has ended stays what it is, as does one whose logits are no
    distribution. What may not be written has the logit −∞ (`suppressed`).

    Raises:
      ValueError: more tokens than the capacity of a `BoundedStep`; as `suppressed`.
    """
    check_room(step, max_tokens)
    first = jnp.asarray(first)

    class Loop(NamedTuple):
        index: Array
        cache: Cache
        newest: Array
        decoded: Decoded

    def running(loop: Loop) -> Array:
        return (loop.index < max_tokens) & ~_stopped(loop.decoded).all()

    def advance(loop: Loop) -> Loop:
        cache, logits = step(loop.cache, loop.newest)
        logits = suppressed(logits, vocab_size, suppress_ids)
        before = loop.decoded
        defined = before.defined & (before.finished | is_defined(logits))
        stopped = before.finished | ~defined
        token = jnp.where(stopped, pad_id, choose(loop.index, logits).astype(first.dtype))
        decoded = Decoded(
            tokens=before.tokens.at[:, loop.index].set(token),
            finished=before.finished | (~stopped & (token == end_id)),
            defined=defined,
        )
        return Loop(loop.index + 1, cache, token, decoded)

    rows = first.shape[0]
    nothing = Decoded(jnp.full((rows, max_tokens), pad_id, first.dtype), jnp.zeros(rows, bool), jnp.ones(rows, bool))
    return jax.lax.while_loop(running, advance, Loop(jnp.int32(0), cache, first, nothing)).decoded


def _stopped(decoded: Decoded) -> Bool[Array, " B"]:
    return decoded.finished | ~decoded.defined
