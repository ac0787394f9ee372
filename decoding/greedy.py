"""Greedy decoding: the most probable token, again and again."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Float, Int

from decoding.loop import decode
from decoding.step import Cache, Decoded, Step
from model.shapes import Array


def greedy(
    step: Step,
    cache: Cache,
    first: Int[Array, " B"],
    *,
    max_tokens: int,
    end_id: int,
    pad_id: int,
    vocab_size: int | None = None,
    suppress_ids: Sequence[int] = (),
) -> Decoded:
    """Decode the most probable token at each step, until every row has ended or has `max_tokens` tokens.

    To be compiled whole: the loop is on the device. A row does not depend on its neighbours, and `finished` rows stay
    what they are. Logits that are NaN or all −∞ are not decoded: the row ends there and is flagged in `defined`.

    Args:
      step: the model, one token at a time.
      cache: as `step` takes it, before the first token.
      first: the token that starts each row (BOS, or the last of a prompt).
      vocab_size: ids from here on are never chosen, where there are more logits than tokens.
      suppress_ids: nor are these, such as PAD and BOS, which no training target has.

    Raises:
      ValueError: more tokens than the capacity of a `BoundedStep`; a vocabulary larger than the logits, or ids to
        suppress that it does not have, or all that it has.
    """

    def choose(index: Int[Array, ""], logits: Float[Array, "B V"]) -> Int[Array, " B"]:
        return jnp.argmax(logits, axis=-1)

    return decode(
        step,
        cache,
        first,
        choose,
        max_tokens=max_tokens,
        end_id=end_id,
        pad_id=pad_id,
        vocab_size=vocab_size,
        suppress_ids=suppress_ids,
    )
