"""Beam search with the length penalty of GNMT (Wu et al. 2016, section 7): the best of several hypotheses at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Bool, Float, Int

from decoding.step import Cache, Step, check_room, is_defined, suppressed, take_rows
from model.shapes import Array


class Hypotheses(NamedTuple):
    """The n best hypotheses of each row: finished ones, the best first, then, where these are too few, unfinished."""

    tokens: Int[Array, "B n N"]
    """Without the first token; after the end token only padding."""
    scores: Float[Array, "B n"]
    """ln p(tokens) / ((5 + L) / 6)^α with L = `lengths`."""
    lengths: Int[Array, "B n"]
    """Tokens that were scored, the end token among them."""
    finished: Bool[Array, "B n"]
    """False: no end after N tokens. Such a score is that of a beginning, which no ending can exceed, and so it is not
    compared with those of whole sentences."""
    valid: Bool[Array, "B n"]
    """False where there are fewer than n different sequences of at most N tokens: nothing but padding, scored −∞."""
    defined: Bool[Array, " B"]
    """False where the logits of a live hypothesis were no distribution (NaN, +∞, or all −∞) before the row was done.
    None of the row's hypotheses exists then."""


class _Beams(NamedTuple):
    """Hypotheses of each row, all different, the best first; those scored −∞ are none."""

    tokens: Int[Array, "B C N"]
    scores: Float[Array, "B C"]
    lengths: Int[Array, "B C"]


def beam_search(
    step: Step,
    cache: Cache,
    first: Int[Array, " B"],
    *,
    beam_size: int,
    max_tokens: int,
    end_id: int,
    pad_id: int,
    length_penalty: float | int = 0.6,
    num_results: int = 1,
    vocab_size: int | None = None,
    suppress_ids: Sequence[int] = (),
) -> Hypotheses:
    """Decode the `num_results` best hypotheses by a beam of `beam_size`. To be compiled whole, like `greedy`.

    At each step the K most probable continuations of the live hypotheses are looked at. Those that end go to a pool of
    the n best finished ones by score; the most probable that do not end live on, K of them again. A row is done when
    its pool is full and no live hypothesis, whatever may still follow, can score more than the worst in it; a row that
    is done does not change while others go on. With one beam and α = 0 it is `greedy`.

    The step is given B · K rows, those of one row of `first` one after another. The cache holds B rows to begin with.
    Its arrays have the batch axis first: rows are picked by indexing every leaf but scalars. What is the same for all
    hypotheses of a row, as the encoder's output, belongs not into the cache but to the step, which may keep it once.

    Args:
      length_penalty: α. 0 compares sums of log-probabilities, which favours the short; more favours the long; less than
        0 favours the short even more. The end token is counted in L, the first token is not.
      num_results: n, at most `beam_size`.
      vocab_size: ids from here on have probability 0, where there are more logits than tokens.
      suppress_ids: so have these, such as PAD and BOS, which no training target has. Scores are those of the
        distribution over the other ids.

    Raises:
      ValueError: an option out of its range; as `greedy`.
    """
    check_room(step, max_tokens)
    _check_options(beam_size, num_results)
    penalties = _penalties(max_tokens, length_penalty)
    first = jnp.asarray(first)
    rows = first.shape[0]
    reorder_cache = getattr(step, "reorder_cache", None) or _pick_parents

    class Loop(NamedTuple):
        index: Array
        cache: Cache
        newest: Array
        live: _Beams
        pool: _Beams
        defined: Array

    def running(loop: Loop) -> Array:
        return (loop.index < max_tokens) & ~_done(loop.live, loop.pool, loop.index, penalties).all()

    def advance(loop: Loop) -> Loop:
        cache, logits = step(loop.cache, loop.newest)
        logits = suppressed(logits, vocab_size, suppress_ids)
        # A row that is done, and a hypothesis that is none, may be given whatever the model makes of them.
        done = _done(loop.live, loop.pool, loop.index, penalties)
        known = is_defined(logits).reshape(rows, beam_size) | (loop.live.scores == -jnp.inf)
        defined = loop.defined & (done | known.all(axis=1))
        log_probabilities = jax.nn.log_softmax(logits, axis=-1).astype(jnp.float32)
        parent, token, total = _best_continuations(loop.live.scores, log_probabilities)
        total = jnp.where(defined[:, None], total, -jnp.inf)
        pool = loop.pool._replace(scores=jnp.where(defined[:, None], loop.pool.scores, -jnp.inf))
        tokens = jnp.take_along_axis(loop.live.tokens, parent[..., None], axis=1).at[:, :, loop.index].set(token)
        length = loop.index + 1
        ends = token == end_id
        # Twice K candidates: at most K of them end, and so K are left that do not. Only the K best may end.
        may_end = ends & (jnp.arange(token.shape[1]) < beam_size)[None]
        ended = _Beams(
            tokens, jnp.where(may_end, total / penalties[length], -jnp.inf), jnp.full(token.shape, length, jnp.int32)
        )
        live, kept = _best(ended._replace(scores=jnp.where(ends, -jnp.inf, total)), beam_size)
        pool, _ = _best(_joined(pool, ended), num_results)
        newest = jnp.take_along_axis(token, kept, axis=1).astype(first.dtype)
        same = _tokens_in_common(loop.live.tokens, loop.index)
        cache = reorder_cache(cache, jnp.take_along_axis(parent, kept, axis=1), same)
        return Loop(length, cache, newest.reshape(-1), live, pool, defined)

    def nothing(count: int) -> _Beams:
        return _Beams(
            jnp.full((rows, count, max_tokens), pad_id, first.dtype),
            jnp.full((rows, count), -jnp.inf, jnp.float32),
            jnp.zeros((rows, count), jnp.int32),
        )

    live = nothing(beam_size)
    # One hypothesis to begin with: K equal ones would stay equal.
    live = live._replace(scores=live.scores.at[:, 0].set(0.0))
    repeated = jnp.repeat(jnp.arange(rows), beam_size)
    pool, defined = nothing(num_results), jnp.ones(rows, bool)
    last = lax.while_loop(
        running, advance, Loop(jnp.int32(0), take_rows(cache, repeated), first[repeated], live, pool, defined)
    )
    live = last.live._replace(scores=last.live.scores / penalties[last.index])
    return _ranked(last.pool, live, last.defined, num_results, pad_id)


def _best_continuations(
    live: Float[Array, "B K"], log_probabilities: Float[Array, "BK V"]
) -> tuple[Int[Array, "B C"], Int[Array, "B C"], Float[Array, "B C"]]:
    """Select the C = 2K most probable continuations (or all, if fewer): parent, token, total log-probability."""
    rows, beams = live.shape
    width = log_probabilities.shape[-1]
    totals = live[..., None] + log_probabilities.reshape(rows, beams, width)
    totals = jnp.where(jnp.isnan(totals), -jnp.inf, totals).reshape(rows, beams * width)
    total, index = lax.top_k(totals, min(2 * beams, beams * width))
    return index // width, (index % width), total


def _pick_parents(cache: Cache, parents: Int[Array, "B K"], same: Int[Array, " B"]) -> Cache:
    rows, beams = parents.shape
    return take_rows(cache, (parents + beams * jnp.arange(rows)[:, None]).reshape(-1))


def _tokens_in_common(tokens: Int[Array, "B K N"], length: Int[Array, ""]) -> Int[Array, " B"]:
    """Count how many of the first `length` tokens are the same in all hypotheses of each row."""
    same = (tokens == tokens[:, :1]).all(axis=1)
    return jnp.minimum(jnp.cumprod(same, axis=1, dtype=jnp.int32).sum(axis=1, dtype=jnp.int32), length)


def _best(beams: _Beams, count: int) -> tuple[_Beams, Int[Array, "B K"]]:
    """Select the `count` best by score, of equals the first; and their indices."""
    scores, index = lax.top_k(beams.scores, count)
    return _picked(beams, index)._replace(scores=scores), index


def _picked(beams: _Beams, index: Int[Array, "B K"]) -> _Beams:
    return _Beams(
        jnp.take_along_axis(beams.tokens, index[..., None], axis=1),
        jnp.take_along_axis(beams.scores, index, axis=1),
        jnp.take_along_axis(beams.lengths, index, axis=1),
    )


def _joined(some: _Beams, others: _Beams) -> _Beams:
    return jax.tree.map(lambda *each: jnp.concatenate(each, axis=1), some, others)


def _done(live: _Beams, pool: _Beams, length: Array, penalties: Array) -> Bool[Array, " B"]:
    """Return whether no live hypothesis of `length` tokens can still enter the pool of finished ones.

    Its log-probability can only fall, and ((5 + L) / 6)^α goes one way with L: so its score is at most what it would be
    if the log-probability stayed and it ended with the next token (α < 0) or with the last that is allowed (α > 0).
    """
    total, last = live.scores[:, 0], penalties.shape[0] - 1
    bound = jnp.maximum(total / penalties[jnp.minimum(length + 1, last)], total / penalties[last])
    return pool.scores[:, -1] >= bound


def _ranked(pool: _Beams, live: _Beams, defined: Bool[Array, " B"], count: int, pad_id: int) -> Hypotheses:
    """The pool, and after it the live hypotheses. These are asked for only where the pool is not full, and then the
    loop has gone to the end: all of them have `max_tokens` tokens."""
    both = _joined(pool, live)
    valid = both.scores > -jnp.inf
    in_pool = jnp.broadcast_to(jnp.arange(valid.shape[1]) < pool.scores.shape[1], valid.shape)
    order = jnp.argsort(jnp.where(valid, ~in_pool, 2), axis=1, stable=True)[:, :count]
    best, valid = _picked(both, order), jnp.take_along_axis(valid, order, axis=1)
    return Hypotheses(
        tokens=jnp.where(valid[..., None], best.tokens, pad_id),
        scores=best.scores,
        lengths=jnp.where(valid, best.lengths, 0),
        finished=valid & jnp.take_along_axis(in_pool, order, axis=1),
        valid=valid,
        defined=defined,
    )


def _penalties(max_tokens: int, length_penalty: float | int) -> Float[Array, " N"]:
    """((5 + L) / 6)^α for L = 0 … `max_tokens`: in float64, rounded once, and so growing or falling throughout."""
    if isinstance(length_penalty, bool) or not isinstance(length_penalty, Real) or not math.isfinite(length_penalty):
        raise ValueError(f"length_penalty must be a finite number, got {length_penalty!r}")
    with np.errstate(over="ignore", under="ignore"):
        penalties = (((5 + np.arange(max_tokens + 1)) / 6) ** float(length_penalty)).astype(np.float32)
    if not (np.isfinite(penalties) & (penalties > np.finfo(np.float32).tiny)).all():
        raise ValueError(f"length_penalty={length_penalty!r} is out of float32's range for {max_tokens} tokens")
    return jnp.asarray(penalties)


def _check_options(beam_size: int, num_results: int) -> None:
    for name, value in (("beam_size", beam_size), ("num_results", num_results)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a positive whole number, got {value!r}")
    if num_results > beam_size:
        raise ValueError(f"num_results={num_results} hypotheses want as many beams, got beam_size={beam_size}")
