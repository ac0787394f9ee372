"""Streaming text generation with a trained language model."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from data.tokenizers.base import EOS, REPLACEMENT
from decoding import prefill_language_model, row_keys
from decoding.decodable import check_decodable
from decoding.sampling import sample_token
from decoding.step import is_defined, suppressed
from inference.generation_config import DecodingOptions
from inference.translator import NOT_NUMBERS

if TYPE_CHECKING:
    from inference.trained_model import TrainedModel

PIECE = 16
"""Tokens that one call of the program takes; then what it wrote is given out."""
MAX_TOKENS = 500
"""Tokens of a continuation where it is not said."""


def continuation(trained: TrainedModel, prompt: str, options: DecodingOptions, number: int = 0) -> Iterator[str]:
    """Generate text after `prompt`, in pieces, until the model ends the document or has written `options.max_tokens`.

    The model sees as many tokens as a row of its training had; the beginning of the text is a document's. As long as
    prompt and continuation are no more than that, the pieces together are what `greedy` or `sample` gives in one call:
    token t is drawn with the row's key folded with t, however the pieces are cut. A longer text is read again, its last
    three quarters of that many tokens, whenever the model's sight is full.

    Args:
      number: of the prompt; what is sampled depends on it and on the seed.

    Raises:
      ValueError: the model's outputs are not numbers; names the prompt's line, which is its number from 1.
    """
    tokenizer, model, params = trained.tokenizers["text"], trained.model, trained.params
    sight = _sight(trained)
    (key,) = row_keys(jax.random.key(options.seed, impl="threefry2x32"), jnp.array([number]))
    choice = (options.temperature, options.top_k, options.top_p) if options.sample else (0.0, 0, 1.0)
    how = {"sight": sight, "choice": choice, "suppress_ids": options.suppress_ids}
    text = [EOS, *tokenizer.encode(prompt).tolist()]
    begin, end = len(text), len(text) + (options.max_tokens or MAX_TOKENS)
    written, ended, cache = "", False, None
    while len(text) < end and not ended:
        if cache is None or free == 0:
            window = text[-tokens_in_sight(trained, len(text)) :]
            # Whole pieces are read at once, so that there are few programs; what is left of them, token by token.
            whole = (len(window) - 1) // PIECE * PIECE
            cache = _read(model, params, np.array([window[: whole + 1]], np.int32), sight=sight)
            given, free = window[whole:], sight - whole
        count = min(PIECE, free, len(given) + end - len(text) - 1)
        tokens = np.array(given + [0] * (PIECE - len(given)), np.int32)
        numbers = (len(given), count, len(text) - begin)
        cache, new, defined = _write(model, params, cache, tokens, numbers, key, **how)
        new, defined = (np.asarray(each)[len(given) - 1 : count].tolist() for each in (new, defined))
        free -= count
        if ended := EOS in new:
            new = new[: new.index(EOS)]
        if not all(defined[: len(new) + ended]):
            raise ValueError(f"line {number + 1}: {NOT_NUMBERS}")
        text, given = text + new, new[-1:]
        found = tokenizer.decode(text[begin:])
        # Bytes at the end that are no character yet may become one with the next piece.
        ready = found if ended or len(text) >= end else found.rstrip(REPLACEMENT)
        if ready.startswith(written) and len(ready) > len(written):
            yield ready[len(written) :]
            written = ready


def tokens_in_sight(trained: TrainedModel, length: int) -> int:
    """Return how many of the last of `length` tokens, BOS counted, the model reads: all, or three quarters of its
    context, which leaves space for the continuation."""
    sight = _sight(trained)
    return length if length <= sight else max(1, sight - max(1, sight // 4))


def _sight(trained: TrainedModel) -> int:
    check_decodable(trained.model)
    return min(trained.spec.max_target_length, trained.model.max_length)


@partial(jax.jit, static_argnames=("model", "sight"))
def _read(model, params, tokens, *, sight: int):
    """Prefill a cache of `sight` slots with all of `tokens` but the last."""
    return prefill_language_model(model, params, tokens, max_tokens=sight - tokens.shape[1] + 1).cache


@partial(jax.jit, static_argnames=("model", "sight", "choice", "suppress_ids"), donate_argnames="cache")
def _write(model, params, cache, tokens, numbers, key, *, sight: int, choice: tuple[float, int, float], suppress_ids):
    """Run `count` decode steps: the cache, the token sampled after each, and whether each distribution was defined
    (`is_defined`), [PIECE] each.

    The first `num_given` steps take the tokens that are given; each later one what the one before has drawn. What is
    drawn after the last given token is the `index`-th of the continuation.

    Args:
      tokens: [PIECE], the given ones first.
      numbers: num_given, count, index.
      choice: temperature, top_k and top_p, as `sample` takes them.
    """
    num_given, count, index = numbers
    # For its step alone: nothing is read here.
    step = prefill_language_model(model, params, tokens[None, :1], max_tokens=sight).step

    def advance(place, loop):
        cache, newest, drawn, defined = loop
        newest = jnp.where(place < num_given, tokens[place], newest)
        cache, logits = step(cache, newest[None])
        logits = suppressed(logits, suppress_ids=suppress_ids)
        now = jax.random.fold_in(key, index + place - (num_given - 1))
        newest = sample_token(now[None], logits, *choice)[0].astype(tokens.dtype)
        return cache, newest, drawn.at[place].set(newest), defined.at[place].set(is_defined(logits)[0])

    start = (cache, tokens[0], tokens, jnp.ones(len(tokens), bool))
    cache, _, drawn, defined = jax.lax.fori_loop(0, count, advance, start)
    return cache, drawn, defined
