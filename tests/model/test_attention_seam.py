"""Another attention is one function handed in: a sliding window (Beltagy et al. 2020), in training and with a cache."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from decoding import greedy, prefill_language_model
from model.attention import scaled_dot_product_attention
from model.components import default_components
from model.config import LanguageModelConfig, TransformerConfig
from model.language_model import LanguageModel
from model.transformer import Transformer
from tests.model.samples import assert_near, compiled

WIDTH = 3
SIZES = {"d_model": 16, "num_heads": 2, "d_ff": 24, "max_length": 24, "dropout": 0.0}


def sliding_window(query, key, value, mask, *, query_positions, key_positions, **options):
    """Attention to the last `WIDTH` positions, a token's own among them."""
    near = key_positions[:, None, None, :] > query_positions[:, None, :, None] - WIDTH
    return scaled_dot_product_attention(query, key, value, near if mask is None else mask & near, **options)


@pytest.fixture(scope="module")
def language_model():
    config = LanguageModelConfig(num_layers=2, **SIZES)
    windowed = dataclasses.replace(default_components(config), self_attention=sliding_window)
    model = LanguageModel(config, 11, windowed)
    params = model.init(jax.random.key(0), jnp.ones((1, 4), int))["params"]
    return model, params


def test_weights_are_zero_outside_the_window_and_the_output_is_that_of_the_brute_force_mask(language_model):
    model, params = language_model
    tokens = jax.random.randint(jax.random.key(1), (2, 9), 1, 11)
    logits, seen = model.apply({"params": params}, tokens, mutable=["intermediates"])
    weights = np.asarray(seen["intermediates"]["self_attention"][0])
    i, j = np.mgrid[:9, :9]
    allowed = (j <= i) & (j > i - WIDTH)
    assert (weights[..., ~allowed] == 0).all() and (weights[..., allowed] > 0).all()
    # Two layers with a window of three reach four tokens back: what lies before has no influence at all.
    changed = tokens.at[:, 0].set(tokens[:, 0] % 10 + 1)
    other = model.apply({"params": params}, changed)
    np.testing.assert_array_equal(other[:, 5:], logits[:, 5:])
    assert not np.array_equal(other[:, 4], logits[:, 4])


def test_cached_steps_after_ragged_prompts_equal_the_whole_pass(language_model):
    model, params = language_model
    prompt = jnp.array([[1, 4, 2, 7, 5, 3], [6, 2, 9, 0, 0, 0]])
    lengths = jnp.array([6, 3])
    step, cache, newest = prefill_language_model(model, params, prompt, lengths, max_tokens=6)
    texts = [prompt[row, : lengths[row]].tolist() for row in range(2)]
    step, apply = jax.jit(step), compiled(lambda tokens: model.apply({"params": params}, tokens))
    for number in range(6):
        cache, logits = step(cache, newest)
        for row in range(2):
            padded = np.zeros((1, 12), np.int32)  # no token sees what follows it, so all lengths share a program
            padded[0, : len(texts[row])] = texts[row]
            assert_near(logits[row], apply(padded)[0, len(texts[row]) - 1], 1e-5)
        newest = jnp.array([2 + number, 9 - number])
        for row in range(2):
            texts[row].append(int(newest[row]))


def test_the_window_changes_what_is_decoded(language_model):
    model, params = language_model
    plain = LanguageModel(model.config, model.vocab_size)
    prompt = jnp.array([[1, 4, 2, 7, 5, 3, 8, 8]])
    outputs = [
        greedy(*prefill_language_model(m, params, prompt, max_tokens=8), max_tokens=8, end_id=0, pad_id=0).tokens
        for m in (model, plain)
    ]
    assert outputs[0].shape == outputs[1].shape and not np.array_equal(*outputs)


def test_an_encoder_decoder_takes_one_for_each_kind_of_attention():
    config = TransformerConfig(num_encoder_layers=1, num_decoder_layers=1, **SIZES)
    positions_seen = []

    def cross(query, key, value, mask, *, query_positions, key_positions, **options):
        positions_seen.append((query_positions, key_positions))
        return scaled_dot_product_attention(query, key, value, mask, **options)

    components = dataclasses.replace(default_components(config), self_attention=sliding_window, cross_attention=cross)
    model = Transformer(config, 11, 11, components)
    source, target = jnp.arange(1, 9)[None], jnp.arange(1, 8)[None]
    params = model.init(jax.random.key(0), source, target)["params"]
    _, seen = model.apply({"params": params}, source, target, mutable=["intermediates"])
    weights = {name: np.asarray(value[0])[0, 0] for name, value in seen["intermediates"].items()}
    i, j = np.mgrid[:8, :8]
    assert (weights["encoder_self_attention"][:, j <= i - WIDTH] == 0).all()
    assert (weights["encoder_self_attention"][:, j > i] > 0).all()
    assert (weights["decoder_cross_attention"] > 0).all()
    assert positions_seen[0] == (None, None)
