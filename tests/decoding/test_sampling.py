"""Sampling: the right distribution, the right edges, and a row that knows nothing of the others."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from decoding import greedy, row_keys, sample
from decoding.sampling import sample_token
from tests.decoding.samples import log_softmax, next_state, random_table, table_step
from tests.model.samples import assert_same_bits, compiled
from tests.training.samples import BOS, EOS, PAD

COUNT = 4000


def keys(seed, count, start=0):
    return row_keys(jax.random.key(seed), jnp.arange(start, start + count))


@functools.cache
def decoder(**options):
    def run(table, states, keys):
        return sample(table_step(table), states, jnp.full(states.shape, BOS), keys, **options)

    return compiled(run)


def decode(table, states, row_keys, **options):
    options = {"max_tokens": 8, "end_id": EOS, "pad_id": PAD} | options
    return decoder(**options)(table, np.asarray(states, np.int32), row_keys)


LOGITS = np.log([0.125, 0.5, 0.25, 0.0625, 0.0625])


SHARES = (
    ({}, [2, 8, 4, 1, 1]),
    ({"top_k": 0}, [2, 8, 4, 1, 1]),
    ({"top_k": 50}, [2, 8, 4, 1, 1]),  # more than there are (D15)
    ({"top_k": 2}, [0, 8, 4, 0, 0]),
    ({"top_k": 1}, [0, 1, 0, 0, 0]),
    ({"top_k": 4}, [2, 8, 4, 1, 0]),  # of two equals the first, so that there are four
    ({"top_p": 0.5}, [0, 1, 0, 0, 0]),  # reached by one
    ({"top_p": 0.51}, [0, 8, 4, 0, 0]),  # the one that crosses it is kept
    ({"top_p": 0.75}, [0, 8, 4, 0, 0]),
    ({"top_p": 1e-9}, [0, 1, 0, 0, 0]),  # never none
    ({"top_k": 3, "top_p": 0.6}, [0, 8, 4, 0, 0]),  # 8/14 of the three is less than 0.6
    ({"temperature": 0.5}, [4, 64, 16, 1, 1]),
    ({"temperature": 0.5, "top_p": 0.7}, [0, 1, 0, 0, 0]),  # 64/86 of the sharpened ones reaches it
    ({"temperature": 0}, [0, 1, 0, 0, 0]),
    # Beyond what float32 holds: next to 0, and next to infinity.
    ({"temperature": 1e-30}, [0, 1, 0, 0, 0]),
    ({"temperature": 1e-50}, [0, 1, 0, 0, 0]),
    ({"temperature": 1e50}, [1, 1, 1, 1, 1]),
    ({"top_p": 1e-50}, [0, 1, 0, 0, 0]),
)


def test_the_shares_of_the_tokens():
    @compiled
    def run(keys):
        logits = jnp.broadcast_to(jnp.float32(LOGITS), (COUNT, len(LOGITS)))
        return [sample_token(keys, logits, **options) for options, _ in SHARES]

    for drawn, (options, weights) in zip(run(keys(0, COUNT)), SHARES):
        wanted, drawn = np.array(weights) / sum(weights), np.bincount(drawn, minlength=len(LOGITS)) / COUNT
        assert (drawn[wanted == 0] == 0).all(), options
        assert (np.abs(drawn - wanted) < 4 * np.sqrt(wanted * (1 - wanted) / COUNT) + 1e-12).all(), options


def test_each_token_is_drawn_from_the_model_after_those_before():
    """The second token of 4,000 rows that start alike: its share given the first is the model's."""
    table = random_table(6)
    table[:, EOS] = -np.inf
    decoded = decode(table, np.full(COUNT, 5), keys(1, COUNT), max_tokens=2)
    first, second = decoded.tokens.T
    after = int(np.bincount(first).argmax())
    wanted = np.exp(log_softmax(table[next_state(next_state(5, BOS), after)]))
    rows = second[first == after]
    drawn = np.bincount(rows, minlength=6) / len(rows)
    assert len(rows) > 500 and (np.abs(drawn - wanted) < 4 * np.sqrt(wanted * (1 - wanted) / len(rows)) + 1e-9).all()


def test_temperature_0_is_greedy_decoding():
    table, states = random_table(7, end=0.5), np.arange(20, dtype=np.int32)
    run = functools.partial(greedy, table_step(table), max_tokens=8, end_id=EOS, pad_id=PAD)
    wanted = compiled(run)(states, np.full(20, BOS, np.int32))
    assert_same_bits(decode(table, states, keys(0, 20), temperature=0, top_k=3, top_p=0.5), wanted)


def test_one_end_and_then_only_padding():
    decoded = decode(random_table(7, end=1.0), range(60), keys(3, 60))
    ends = decoded.tokens == EOS
    assert (ends.sum(axis=1) == decoded.finished).all() and 0 < decoded.finished.sum() < 60
    after = ends.cumsum(axis=1) - ends > 0
    assert (decoded.tokens[after] == PAD).all() and after.any()


def test_a_row_is_a_function_of_its_seed_and_number():
    """Not of its neighbours, nor of the batch it is in; and the defaults draw (D19)."""
    table, states = random_table(7), np.full(6, 5)
    decoded = decode(table, states, keys(0, 6))
    assert_same_bits(decode(table, [5, 1, 2, 3, 4, 0], keys(0, 6)).tokens[0], decoded.tokens[0])
    assert len({tuple(row) for row in decoded.tokens.tolist()}) == 6  # equal rows, other numbers
    assert (decode(table, states, keys(1, 6)).tokens != decoded.tokens).any(axis=1).all()
    tail = decode(table, states[:2], keys(0, 2, start=4))
    assert_same_bits(tail.tokens, decoded.tokens[4:])


def test_ids_that_only_fill_up_the_vocabulary_are_never_drawn():
    table = random_table(8)
    table[:, 7] = 50.0
    for options in ({"top_k": 6}, {"top_p": 0.999}, {"temperature": 0}):
        assert (decode(table, range(40), keys(0, 40), vocab_size=5, **options).tokens < 5).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1}, "temperature must be a number, 0 or more, got -1"),
        ({"temperature": float("nan")}, "temperature must be a number, 0 or more, got nan"),
        ({"top_k": -1}, r"top_k must be a whole number, 0 \(off\) or more, got -1"),
        ({"top_k": 2.5}, r"top_k must be a whole number, 0 \(off\) or more, got 2.5"),
        ({"top_p": 0}, r"top_p must be a number in \(0, 1\], got 0"),
        ({"top_p": 1.5}, r"top_p must be a number in \(0, 1\], got 1.5"),
    ],
)
def test_options_out_of_range_are_refused(options, message, without_shape_checks):
    with pytest.raises(ValueError, match=message):
        decode(random_table(6), [1], keys(0, 1), **options)
