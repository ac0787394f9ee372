"""The encoder–decoder Transformer as a step function."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from decoding.greedy import Decoded, Step, greedy
from model.masks import PAD_ID
from model.transformer import Transformer


class Prefix(NamedTuple):
    """The source, read once, and the target so far. Each step runs the decoder over the whole prefix."""

    memory: Float[Array, "B S D"]
    source_valid: Bool[Array, "B S"]
    tokens: Int[Array, "B N"]
    length: Int[Array, ""]


def transformer_step(
    model: Transformer, params: Any, source: Int[Array, "B S"], max_tokens: int
) -> tuple[Step, Prefix]:
    """A step function for `model` and its cache before the first token, with room for `max_tokens`."""
    source_valid = source != PAD_ID
    memory = model.apply({"params": params}, source, source_valid=source_valid, method="encode")
    cache = Prefix(memory, source_valid, jnp.full((source.shape[0], max_tokens), PAD_ID, source.dtype), jnp.int32(0))

    def step(cache: Prefix, newest: Array) -> tuple[Prefix, Array]:
        tokens = cache.tokens.at[:, cache.length].set(newest, mode="promise_in_bounds")
        features = model.apply(
            {"params": params}, tokens, cache.memory, source_valid=cache.source_valid, method="decode"
        )
        last = jax.lax.dynamic_slice_in_dim(features, cache.length, 1, axis=1)
        logits = model.apply({"params": params}, last, method="logits")[:, 0]
        return cache._replace(tokens=tokens, length=cache.length + 1), logits

    return step, cache


def greedy_transformer(
    model: Transformer, params: Any, source: Int[Array, "B S"], *, max_tokens: int, first_id: int, end_id: int
) -> Decoded:
    """Greedy decoding of each row of `source`."""
    step, cache = transformer_step(model, params, source, max_tokens)
    first = jnp.full(source.shape[0], first_id, source.dtype)
    return greedy(step, cache, first, max_tokens=max_tokens, end_id=end_id, pad_id=PAD_ID)
