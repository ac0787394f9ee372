"""How probable a given continuation is: for multiple choice, and for scores that can be checked."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from decoding.step import without_padded_ids
from model.language_model import LanguageModel
from model.masks import PAD_ID
from model.transformer import Transformer


class Likelihood(NamedTuple):
    """What a model makes of a continuation."""

    log_probability: Float[Array, " B"]
    """ln p(continuation | context), its tokens together. Divide by `num_tokens` to compare lengths."""
    num_tokens: Int[Array, " B"]
    is_greedy: Bool[Array, " B"]
    """Each of the tokens is the most probable one in its place."""


def log_likelihood(
    model: LanguageModel | Transformer,
    params: Any,
    context: Int[Array, "B S"],
    continuation: Int[Array, "B T"],
    *,
    first_id: int | None = None,
    vocab_size: int | None = None,
) -> Likelihood:
    """ln p(continuation | context), by one forward pass over both. To be compiled whole.

    Args:
      model: of a language model the continuation follows the context in one sequence; of a Transformer the context is
        the source and the continuation the target.
      context, continuation: rows of any length, filled up with PAD (0) on the right. Whether they end with EOS is the
        caller's to say. A language model's context has a token at least (BOS); without, the result is NaN.
      first_id: what a Transformer's target begins with (BOS), and is given, not scored.
      vocab_size: ids from here on have probability 0, where there are more logits than tokens.

    Raises:
      ValueError: longer together than the model's longest sequence; a `first_id` too few or too many.
    """
    width, apply = continuation.shape[1], lambda *inputs, **options: model.apply({"params": params}, *inputs, **options)
    if isinstance(model, LanguageModel):
        if first_id is not None:
            raise ValueError("a language model's context begins with its first token: first_id is for a Transformer")
        lengths = (context != PAD_ID).sum(axis=1)
        features = apply(_joined(context, lengths, continuation)[:, :-1], method="features")
        before = jnp.maximum(lengths[:, None] - 1 + jnp.arange(width)[None], 0)
        features = jnp.take_along_axis(features, before[..., None], axis=1)
        features = jnp.where(lengths[:, None, None] > 0, features, jnp.nan)  # nothing there to continue
    else:
        if first_id is None:
            raise ValueError("a Transformer's target begins with a token that is not scored: first_id must be given")
        target = jnp.pad(continuation[:, :-1], [(0, 0), (1, 0)], constant_values=first_id)
        features = apply(context, target, method="features")
    logits = apply(features, method="logits")
    return token_likelihood(logits, continuation, continuation != PAD_ID, vocab_size=vocab_size)


def token_likelihood(
    logits: Float[Array, "B T V"],
    tokens: Int[Array, "B T"],
    scored: Bool[Array, "B T"],
    *,
    vocab_size: int | None = None,
) -> Likelihood:
    """That of `tokens` where `scored`, each under the logits in its place."""
    rows, width, _ = logits.shape
    logits = without_padded_ids(logits.reshape(rows * width, -1), vocab_size).reshape(logits.shape)
    log_probabilities = jnp.take_along_axis(jax.nn.log_softmax(logits, axis=-1), tokens[..., None], axis=-1)[..., 0]
    return Likelihood(
        log_probability=jnp.where(scored, log_probabilities, 0).sum(axis=1),
        num_tokens=scored.sum(axis=1),
        is_greedy=(~scored | (jnp.argmax(logits, axis=-1) == tokens)).all(axis=1),
    )


def _joined(context: Array, lengths: Array, continuation: Array) -> Array:
    """[B, S + T]: in each row the context's tokens, and the continuation right after them."""
    width = context.shape[1]
    place = jnp.arange(width + continuation.shape[1])[None]
    from_continuation = place >= lengths[:, None]
    index = jnp.where(from_continuation, width + place - lengths[:, None], place)
    both = jnp.concatenate([context, continuation], axis=1)
    return jnp.take_along_axis(both, jnp.minimum(index, both.shape[1] - 1), axis=1)
