"""The small Transformer, decoded greedily in one call."""

import jax.numpy as jnp

from decoding import greedy, start_transformer
from tests.training.samples import BOS, EOS, PAD


def greedy_transformer(model, params, source, *, max_tokens, vocab_size=None):
    prompt = jnp.full((source.shape[0], 1), BOS, source.dtype)
    start = start_transformer(model, params, source, prompt, max_tokens=max_tokens)
    return greedy(*start, max_tokens=max_tokens, end_id=EOS, pad_id=PAD, vocab_size=vocab_size)
