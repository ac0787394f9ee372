"""The step function (cache, token) -> (cache, logits) that decoding calls, and the types around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from model.cache import gather_rows
from model.shapes import Array

Cache = Any
"""What a step needs to know of the tokens before: any pytree of arrays. Those that are not scalars have the batch axis
first."""
Step = Callable[[Cache, Int[Array, " B"]], tuple[Cache, Float[Array, "B V"]]]
"""(cache, newest token of each row) -> (cache, logits of the token after it)."""


@dataclass(frozen=True, eq=False)
class BoundedStep:
    """A step function with a cache of fixed capacity: decoding more tokens is refused before it starts."""

    step: Step
    capacity: int
    """How often it may be called."""
    reorder_cache: Callable[[Cache, Int[Array, "B K"], Int[Array, " B"]], Cache] | None = None
    """(cache, parents, same) -> the cache in which row b · K + k holds what row b · K + `parents[b, k]` held. The rows
    of group b have the first token and `same[b]` more in common. None: whole rows are picked."""

    def __call__(self, cache: Cache, newest: Int[Array, " B"]) -> tuple[Cache, Float[Array, "B V"]]:
        return self.step(cache, newest)


class DecodeInputs(NamedTuple):
    """The first arguments of `greedy`, `sample` and `beam_search`."""

    step: Step
    cache: Cache
    first: Int[Array, " B"]


class Decoded(NamedTuple):
    """Decoded tokens of a batch, as `greedy` and `sample` return them."""

    tokens: Int[Array, "B N"]
    """Without the first token; after the end token only padding."""
    finished: Bool[Array, " B"]
    """False where a row had no end after N tokens."""
    defined: Bool[Array, " B"]
    """False where logits were no distribution (see `is_defined`) before the row had ended: from there on its tokens are
    padding, and the row counts as cut off."""


def check_room(step: Step, max_tokens: int) -> None:
    """Raises ValueError unless 1 ≤ `max_tokens` ≤ the capacity of `step`."""
    if max_tokens < 1:
        raise ValueError(f"max_tokens must be at least 1, got {max_tokens}")
    if isinstance(step, BoundedStep) and max_tokens > step.capacity:
        raise ValueError(f"the cache was made for {step.capacity} tokens, max_tokens={max_tokens} are more")


def suppressed(
    logits: Float[Array, "*batch V"], vocab_size: int | None = None, suppress_ids: Sequence[int] = ()
) -> Float[Array, "*batch V"]:
    """Replace the logits of `ids` by −∞, so that the other ids share the whole probability.

    Args:
      vocab_size: ids from here on: a vocabulary rounded up to a multiple has ids that mean nothing. None: all are real.
      suppress_ids: and these, such as padding and the beginning of a sentence, which no training target has.

    Raises:
      ValueError: a vocabulary larger than the logits, an id that is none of it, or nothing left.
    """
    width = logits.shape[-1]
    vocab_size = width if vocab_size is None else vocab_size
    if not 1 <= vocab_size <= width:
        raise ValueError(f"vocab_size must be 1 to {width}, the logits there are; got {vocab_size}")
    allowed = np.arange(width) < vocab_size
    for suppress_id in suppress_ids:
        if not 0 <= suppress_id < width:
            raise ValueError(f"suppress_ids must be 0 to {width - 1}, ids that have logits; got {suppress_id}")
        allowed[suppress_id] = False
    if not allowed.any():
        raise ValueError(f"suppress_ids {tuple(suppress_ids)} leave no token of {vocab_size}")
    return logits if allowed.all() else jnp.where(jnp.broadcast_to(allowed, logits.shape), logits, -jnp.inf)


def is_defined(logits: Float[Array, "*batch V"]) -> Bool[Array, "*batch"]:
    """Return whether softmax(logits) is a distribution: no logit is NaN or +∞, and one at least is more than −∞."""
    return jnp.isfinite(jnp.max(logits, axis=-1))


def take_rows(cache: Cache, rows: Int[Array, " B"]) -> Cache:
    """Gather rows of a cache: row i of the result is row `rows[i]`; every leaf is indexed but the scalars."""
    return jax.tree.map(lambda leaf: leaf if jnp.ndim(leaf) == 0 else gather_rows(leaf, rows), cache)
