"""Sampling: each token drawn from the model's distribution, or its head (Fan et al. 2018; Holtzman et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int, Key

from decoding.loop import decode
from decoding.step import Cache, Decoded, Step
from model.shapes import Array

LEAST, MOST = float(jnp.finfo(jnp.float32).tiny), float(jnp.finfo(jnp.float32).max)
"""What is less than `LEAST` float32 takes for 0, and what is more than `MOST` for infinity."""


def row_keys(key: Key[Array, ""], rows: Int[Array, " B"]) -> Key[Array, " B"]:
    """Derive a key for each row from (seed, number of the row): what a row draws depends on nothing else.

    Rows of a second batch go on counting, and nothing depends on how the lines were cut into batches.
    """
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, rows)


def sample(
    step: Step,
    cache: Cache,
    first: Int[Array, " B"],
    keys: Key[Array, " B"],
    *,
    max_tokens: int,
    end_id: int,
    pad_id: int,
    temperature: float | int = 1.0,
    top_k: int | None = None,
    top_p: float | int = 1.0,
    vocab_size: int | None = None,
    suppress_ids: Sequence[int] = (),
) -> Decoded:
    """Sample tokens from softmax(logits / temperature), until every row has ended or has `max_tokens` tokens.

    To be compiled whole, like `greedy`, and with the same flag for logits that are no distribution.

    Args:
      keys: one for each row, as `row_keys` makes them.
      temperature: 0 takes the most probable token; less than 1 sharpens, more flattens.
      top_k: draw from the k most probable tokens; 0 or None: from all.
      top_p: of these, from the fewest whose probability is at least p together: the one that crosses p is among them.
      vocab_size, suppress_ids: these ids are never drawn, as in `greedy`, and not counted among the k or in the p.

    Raises:
      ValueError: an option out of its range; as `greedy`.
    """
    _check_options(temperature, top_k, top_p)

    def choose(index: Int[Array, ""], logits: Float[Array, "B V"]) -> Int[Array, " B"]:
        now = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, index)
        return sample_token(now, logits, temperature, top_k, top_p)

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


def sample_token(
    keys: Key[Array, " B"],
    logits: Float[Array, "B V"],
    temperature: float | int = 1.0,
    top_k: int | None = None,
    top_p: float | int = 1.0,
) -> Int[Array, " B"]:
    """Sample one token for each row; options as in `sample`.

    Of equal logits the lower id counts as the more probable.
    """
    if temperature < LEAST:
        return jnp.argmax(logits, axis=-1)
    # So the highest is 0 and stays so, however small the temperature is; others may overflow to −∞, as they should.
    logits = (logits - logits.max(axis=-1, keepdims=True)) / min(temperature, MOST)
    choose = jax.vmap(jax.random.categorical)
    if not top_k and top_p == 1:
        return choose(keys, logits)
    logits, ids = jax.lax.top_k(logits, min(top_k or logits.shape[-1], logits.shape[-1]))  # sorted, the highest first
    probabilities = jax.nn.softmax(logits, axis=-1)
    before = jnp.cumsum(probabilities, axis=-1) - probabilities
    if top_p < 1:
        logits = jnp.where(before < max(top_p, LEAST), logits, -jnp.inf)
    return jnp.take_along_axis(ids, choose(keys, logits)[:, None], axis=-1)[:, 0]


def _check_options(temperature: float | int, top_k: int | None, top_p: float | int) -> None:
    if not _is_number(temperature) or not 0 <= temperature < float("inf"):
        raise ValueError(f"temperature must be a number, 0 or more, got {temperature!r}")
    if top_k is not None and (isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 0):
        raise ValueError(f"top_k must be a whole number, 0 (off) or more, got {top_k!r}")
    if not _is_number(top_p) or not 0 < top_p <= 1:
        raise ValueError(f"top_p must be a number in (0, 1], got {top_p!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
