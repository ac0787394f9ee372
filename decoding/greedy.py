"""Greedy decoding: the most probable token, again and again."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from decoding.loop import decode
from decoding.step import Cache, Decoded, Step, without_padded_ids


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

    def choose(index: Int[Array, ""], logits: Float[Array, "B V"]) -> Int[Array, " B"]:
        return jnp.argmax(without_padded_ids(logits, vocab_size), axis=-1)

    return decode(step, cache, first, choose, max_tokens=max_tokens, end_id=end_id, pad_id=pad_id)
