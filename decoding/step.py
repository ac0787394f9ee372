"""What all decoding is a function of: a step (cache, token) -> (cache, logits), and what comes out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from model.cache import pick

Cache = Any
"""What a step needs to know of the tokens before: any pytree of arrays. Those that are not scalars have the batch axis
first."""
Step = Callable[[Cache, Int[Array, " B"]], tuple[Cache, Float[Array, "B V"]]]
"""(cache, newest token of each row) -> (cache, logits of the token after it)."""


@dataclass(frozen=True, eq=False)
class BoundedStep:
    """A step whose cache has room for so many tokens only: more are refused before any is decoded."""

    step: Step
    room: int
    """How often it may be called."""
    reorder: Callable[[Cache, Int[Array, "B K"], Int[Array, " B"]], Cache] | None = None
    """(cache, parents, same) -> the cache in which row b · K + k holds what row b · K + `parents[b, k]` held. The rows
    of group b have the first token and `same[b]` more in common. None: whole rows are picked."""

    def __call__(self, cache: Cache, newest: Int[Array, " B"]) -> tuple[Cache, Float[Array, "B V"]]:
        return self.step(cache, newest)


class Decoded(NamedTuple):
    """What decoding gives."""

    tokens: Int[Array, "B N"]
    """Without the first token; after the end token only padding."""
    finished: Bool[Array, " B"]
    """False where a row had no end after N tokens."""


def check_room(step: Step, max_tokens: int) -> None:
    """Raises ValueError if `step` has no room for `max_tokens` tokens, or there are none to decode."""
    if max_tokens < 1:
        raise ValueError(f"max_tokens must be at least 1, got {max_tokens}")
    if isinstance(step, BoundedStep) and max_tokens > step.room:
        raise ValueError(f"the cache was made for {step.room} tokens, max_tokens={max_tokens} are more")


def without_padded_ids(logits: Float[Array, "B V"], vocab_size: int | None) -> Float[Array, "B V"]:
    """−∞ for the ids from `vocab_size` on: a vocabulary rounded up to a multiple has ids that mean nothing."""
    if vocab_size is None or vocab_size == logits.shape[-1]:
        return logits
    if not 1 <= vocab_size <= logits.shape[-1]:
        raise ValueError(f"vocab_size must be 1 to {logits.shape[-1]}, the logits there are; got {vocab_size}")
    real = jnp.arange(logits.shape[-1]) < vocab_size
    return jnp.where(jnp.broadcast_to(real, logits.shape), logits, -jnp.inf)


def take_rows(cache: Cache, rows: Int[Array, " B"]) -> Cache:
    """The cache of a batch whose row i is row `rows[i]` of this one: every leaf indexed but the scalars."""
    return jax.tree.map(lambda leaf: leaf if jnp.ndim(leaf) == 0 else pick(leaf, rows), cache)
