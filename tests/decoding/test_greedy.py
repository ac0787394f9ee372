"""Greedy decoding: a loop on the device that does what a loop in Python would do."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from decoding.greedy import greedy
from tests.decoding.samples import STATES, next_state, random_table, table_step
from tests.model.samples import assert_same_bits
from tests.training.samples import BOS, EOS, PAD

VOCAB = 8
ROWS = 31
"""First states, one for each row."""


def loop_in_python(table, state, max_tokens):
    """One row: its tokens without padding, and whether it ended."""
    tokens, newest = [], BOS
    while len(tokens) < max_tokens:
        state = next_state(state, newest)
        newest = int(table[state].argmax())
        tokens.append(newest)
        if newest == EOS:
            return tokens, True
    return tokens, False


def decode(table, states, max_tokens, called=None):
    states = jnp.asarray(states, jnp.int32)
    run = partial(greedy, table_step(table, called), max_tokens=max_tokens, end_id=EOS, pad_id=PAD)
    decoded = jax.device_get(jax.jit(run)(states, jnp.full(states.shape, BOS)))
    jax.effects_barrier()
    return decoded


@pytest.mark.parametrize("max_tokens", [1, 3, 12])
@pytest.mark.parametrize("seed", [0, 1])
def test_equals_a_loop_in_python(seed, max_tokens):
    table = random_table(VOCAB, seed, end=0.5)
    decoded = decode(table, range(ROWS), max_tokens)
    assert decoded.tokens.shape == (ROWS, max_tokens)
    for row in range(ROWS):
        tokens, ended = loop_in_python(table, row, max_tokens)
        assert decoded.tokens[row].tolist() == tokens + [PAD] * (max_tokens - len(tokens))
        assert decoded.finished[row] == ended
    if max_tokens > 1:
        assert 0 < decoded.finished.sum() < ROWS


def test_after_the_end_there_is_only_padding():
    """Whatever the model goes on to say; and an end in the very first place is one."""
    table = random_table(VOCAB, 0, end=0.5)
    decoded = decode(table, range(ROWS), 12)
    ends = decoded.tokens == EOS
    assert (ends.sum(axis=1) == decoded.finished).all()
    after = ends.cumsum(axis=1) - ends > 0
    assert (decoded.tokens[after] == PAD).all() and after.any()
    assert (decoded.tokens[:, 0] == EOS).any()


def test_stops_when_every_row_has_ended():
    table = random_table(VOCAB, 0, end=0.5)
    lengths = {row: len(loop_in_python(table, row, 20)[0]) for row in range(ROWS)}
    rows = [row for row in range(ROWS) if lengths[row] <= 4]
    assert len({lengths[row] for row in rows}) > 2
    called = []
    decoded = decode(table, rows, 20, called)
    assert decoded.finished.all() and len(called) == max(lengths[row] for row in rows)


def test_takes_no_more_than_the_tokens_allowed():
    table = np.eye(VOCAB, dtype=np.float32)[np.full(STATES, 5)]
    called = []
    decoded = decode(table, range(3), 6, called)
    assert (decoded.tokens == 5).all() and decoded.tokens.shape == (3, 6)
    assert not decoded.finished.any() and len(called) == 6


def test_the_end_in_the_last_place_is_an_end():
    table = random_table(VOCAB, 0, end=0.5)
    row = next(row for row in range(ROWS) if 1 < len(loop_in_python(table, row, 12)[0]) < 12)
    length = len(loop_in_python(table, row, 12)[0])
    assert decode(table, [row], length).finished.all()
    assert not decode(table, [row], length - 1).finished.any()


def test_a_row_does_not_depend_on_its_neighbours():
    table = random_table(VOCAB, 1, end=0.5)
    ones, others = decode(table, [3, 7, 11], 9), decode(table, [3, 20, 30], 9)
    assert_same_bits(ones.tokens[0], others.tokens[0])
    assert ones.tokens[1:].tolist() != others.tokens[1:].tolist()


def test_a_batch_of_one_shape_is_compiled_once():
    """All of it, the loop included: between two tokens the host has nothing to do."""
    traced = []

    def step(state, newest):
        traced.append(1)
        state = next_state(state, newest)
        return state, jnp.asarray(random_table(VOCAB, 0, end=0.5))[state]

    run = jax.jit(partial(greedy, step, max_tokens=12, end_id=EOS, pad_id=PAD))
    for start in range(3):
        run(jnp.arange(start, start + 4), jnp.full(4, BOS))
        if start == 0:
            once = len(traced)
    assert len(traced) == once and run._cache_size() == 1
