"""Text that goes on, with a trained language model, a few tokens at a time as they come."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from data.tokenizer import EOS, PAD, REPLACEMENT
from decoding import greedy, row_keys, sample, start_language_model
from experiments.decoding_options import DecodingOptions

if TYPE_CHECKING:
    from experiments.experiment import Trained
    from experiments.saved_run import LoadedModel

CHUNK = 16
"""Tokens that are decoded by one program call; then they are given out, and the text so far is read again."""
MAX_TOKENS = 500
"""Tokens of a continuation where it is not said."""


def continuation(
    trained: Trained | LoadedModel, prompt: str, options: DecodingOptions, number: int = 0
) -> Iterator[str]:
    """What follows `prompt`, in pieces: until the model ends the document, or has written `options.max_tokens`.

    The model reads as many tokens as a row of its training had, less those of a piece: of a longer text the last ones.
    The beginning of the text is a document's.

    Args:
      number: of the prompt; what is sampled depends on it and on the seed.
    """
    tokenizer, model = trained.tokenizers["text"], trained.model
    context = min(trained.limits.max_target_length, model.config.max_length)
    chunk = min(CHUNK, max(1, context // 4))
    width = context - chunk + 1
    tokens = [EOS, *tokenizer.encode(prompt).tolist()]
    begin, left = len(tokens), options.max_tokens or MAX_TOKENS
    static = dataclasses.replace(options, seed=0, batch_size=1, max_tokens=chunk)
    (key,) = row_keys(jax.random.key(options.seed, impl="threefry2x32"), jnp.array([number]))
    written, ended, piece = "", False, 0
    while left > 0 and not ended:
        window = np.full((1, width), PAD, np.int32)
        last = tokens[-width:]
        window[0, : len(last)] = last
        keys = jax.random.fold_in(key, piece)[None]
        new = np.asarray(_next(model, trained.params, window, np.array([len(last)], np.int32), keys, options=static))[0]
        new = new[:left].tolist()
        if ended := EOS in new:
            new = new[: new.index(EOS)]
        tokens, left, piece = tokens + new, left - len(new), piece + 1
        text = tokenizer.decode(tokens[begin:])
        # Bytes at the end that are no character yet may become one with the next piece.
        ready = text if ended or left <= 0 else text.rstrip(REPLACEMENT)
        if ready.startswith(written) and len(ready) > len(written):
            yield ready[len(written) :]
            written = ready


@partial(jax.jit, static_argnames=("model", "options"))
def _next(model, params, window, length, keys, *, options: DecodingOptions):
    start = start_language_model(model, params, window, length, max_tokens=options.max_tokens)
    ends = {"max_tokens": options.max_tokens, "end_id": EOS, "pad_id": PAD}
    if options.sample:
        choice = {name: getattr(options, name) for name in ("temperature", "top_k", "top_p")}
        return sample(*start, keys, **choice, **ends).tokens
    return greedy(*start, **ends).tokens
