"""Log-likelihood of a given continuation: for multiple choice, and for scores that can be checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from decoding.step import is_defined, suppressed
from model.language_model import LanguageModel
from model.masks import PAD_ID
from model.shapes import Array
from model.transformer import Transformer


class Likelihood(NamedTuple):
    """Log-likelihood of a continuation, by token and summed."""

    log_probability: Float[Array, " B"]
    """ln p(continuation | context), its tokens together. Divide by `num_tokens` to compare lengths."""
    num_tokens: Int[Array, " B"]
    is_greedy: Bool[Array, " B"]
    """Each of the tokens is the most probable one in its place."""
    defined: Bool[Array, " B"]
    """False where the logits of a place were no distribution (NaN, +∞, or all −∞): the log-probability is NaN then."""


def log_likelihood(
    model: nn.Module,
    params: Any,
    context: Int[Array, "B S"],
    continuation: Int[Array, "B T"],
    *,
    first_id: int | None = None,
    vocab_size: int | None = None,
    suppress_ids: Sequence[int] = (),
) -> Likelihood:
    """Compute ln p(continuation | context) by one forward pass over both. To be compiled whole.

    Args:
      model: any Flax module with the methods `features` and `logits`. Of a language model the continuation follows the
        context in one sequence; of an encoder-decoder the context is the source and the continuation the target.
      context, continuation: rows of any length, filled up with PAD (0) on the right. Whether they end with EOS is the
        caller's to say. A language model's context has a token at least (BOS); without, the result is not defined.
      first_id: what an encoder-decoder's target begins with (BOS), and is given, not scored. None: a language model.
      vocab_size, suppress_ids: these ids have probability 0, as in decoding: what `beam_search` or `greedy` wrote has
        the score of its own search if both are given the same.

    Raises:
      ValueError: longer together than the model's longest sequence; a `first_id` too few or too many; ids that are
        none to suppress.
    """
    context, continuation = jnp.asarray(context), jnp.asarray(continuation)
    width, apply = continuation.shape[1], lambda *inputs, **options: model.apply({"params": params}, *inputs, **options)
    if first_id is not None and isinstance(model, LanguageModel):
        raise ValueError("a language model's context begins with its first token: first_id is for a Transformer")
    if first_id is None and isinstance(model, Transformer):
        raise ValueError("a Transformer's target begins with a token that is not scored: first_id must be given")
    if first_id is None:
        lengths = (context != PAD_ID).sum(axis=1)
        features = apply(_joined(context, lengths, continuation)[:, :-1], method="features")
        before = jnp.maximum(lengths[:, None] - 1 + jnp.arange(width)[None], 0)
        features = jnp.take_along_axis(features, before[..., None], axis=1)
        features = jnp.where(lengths[:, None, None] > 0, features, jnp.nan)  # nothing there to continue
    else:
        target = jnp.pad(continuation[:, :-1], [(0, 0), (1, 0)], constant_values=first_id)
        features = apply(context, target, method="features")
    logits = apply(features, method="logits")
    return token_likelihood(
        logits, continuation, continuation != PAD_ID, vocab_size=vocab_size, suppress_ids=suppress_ids
    )


def token_likelihood(
    logits: Float[Array, "B T V"],
    tokens: Int[Array, "B T"],
    scored: Bool[Array, "B T"],
    *,
    vocab_size: int | None = None,
    suppress_ids: Sequence[int] = (),
) -> Likelihood:
    """Compute the log-likelihood of `tokens` where `scored`, each under the logits in its place."""
    logits = suppressed(logits, vocab_size, suppress_ids)
    defined = (~scored | is_defined(logits)).all(axis=1)
    log_probabilities = jnp.take_along_axis(jax.nn.log_softmax(logits, axis=-1), tokens[..., None], axis=-1)[..., 0]
    return Likelihood(
        log_probability=jnp.where(defined, jnp.where(scored, log_probabilities, 0).sum(axis=1), jnp.nan),
        num_tokens=scored.sum(axis=1, dtype=jnp.int32),
        is_greedy=defined & (~scored | (jnp.argmax(logits, axis=-1) == tokens)).all(axis=1),
        defined=defined,
    )


def _joined(context: Array, lengths: Array, continuation: Array) -> Array:
    """Join each row's context and, right after its tokens, the continuation: [B, S + T]."""
    width = context.shape[1]
    place = jnp.arange(width + continuation.shape[1])[None]
    from_continuation = place >= lengths[:, None]
    index = jnp.where(from_continuation, width + place - lengths[:, None], place)
    both = jnp.concatenate([context, continuation], axis=1)
    return jnp.take_along_axis(both, jnp.minimum(index, both.shape[1] - 1), axis=1)
