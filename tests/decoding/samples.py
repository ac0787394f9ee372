"""Steps whose logits are known for every prefix, and the small Transformer decoded greedily in one call."""

import jax
import jax.numpy as jnp
import numpy as np

from decoding import greedy, prefill_transformer
from tests.training.samples import BOS, EOS, PAD

STATES = 1009


def next_state(state, token):
    """A number for each prefix, and for nearly each another."""
    return (31 * state + 7 * token + 3) % STATES


def random_table(vocab_size, seed=0, end=0.0):
    """Logits of each state; the end token's are raised by `end`."""
    table = np.random.default_rng(seed).normal(size=(STATES, vocab_size)).astype(np.float32) * 1.5
    table[:, EOS] += end
    return table


def table_step(table, called=None):
    """A step whose logits depend on every token before, through a state per row; `called` counts its calls."""

    def step(state, newest):
        if called is not None:
            jax.debug.callback(lambda: called.append(1))
        state = next_state(state, newest)
        return state, jnp.asarray(table)[state]

    return step


def log_softmax(logits):
    logits = np.asarray(logits, np.float64)
    logits = logits - logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def tree_table(children):
    """Probabilities by prefix, {(): {token: p}, (3,): {…}}, as a step and the cache it starts with.

    The state is the prefix's number; a prefix that is not named goes on with the end.
    """
    prefixes = list(children)
    vocab_size = 1 + max(token for row in children.values() for token in row)
    logits = np.full((len(prefixes) + 1, vocab_size), -np.inf, np.float32)
    logits[-1, EOS] = 0
    moves = np.full((len(prefixes) + 1, vocab_size), len(prefixes), np.int32)
    for number, prefix in enumerate(prefixes):
        for token, probability in children[prefix].items():
            logits[number, token] = np.log(probability)
            if (*prefix, token) in children:
                moves[number, token] = prefixes.index((*prefix, token))

    def step(state, newest):
        state = jnp.where(newest == BOS, state, jnp.asarray(moves)[state, newest])
        return state, jnp.asarray(logits)[state]

    return step, np.zeros(1, np.int32) + prefixes.index(())


def greedy_transformer(model, params, source, *, max_tokens, vocab_size=None):
    prompt = jnp.full((source.shape[0], 1), BOS, source.dtype)
    start = prefill_transformer(model, params, source, prompt, max_tokens=max_tokens)
    return greedy(*start, max_tokens=max_tokens, end_id=EOS, pad_id=PAD, vocab_size=vocab_size)
