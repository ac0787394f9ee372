"""Dropout: rates, means, keys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import model.dropout
from model.config import LanguageModelConfig, TransformerConfig
from model.dropout import LEVELS, Dropout, dropout, make_dropout
from model.language_model import LanguageModel
from model.transformer import Transformer
from tests.model.jaxprs import random_bits, traced
from tests.model.samples import assert_near, assert_same_bits, compiled, normal, parameters, token_ids

drop_out = compiled(lambda x, seed, rate: dropout(x, jax.random.key(seed), rate))


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9])
def test_the_rate_is_respected_and_the_mean_kept(rate):
    y = drop_out(np.ones((1000, 257), np.float32), 0, rate)
    error = np.sqrt(rate * (1 - rate) / y.size)
    assert abs((y == 0).mean() - rate) < 4 * error
    assert np.allclose(y[y != 0], 1 / (1 - rate), rtol=1e-4)
    assert abs(y.mean() - 1) < 4 * error / (1 - rate)
    by_column = (y == 0).mean(axis=0)  # both halves of every word, and the odd one at the end
    assert np.abs(by_column - rate).max() < 5 * np.sqrt(rate * (1 - rate) / 1000)
    neighbours = np.corrcoef((y[:, :-1] == 0).ravel(), (y[:, 1:] == 0).ravel())[0, 1]
    assert abs(neighbours) < 0.01


@pytest.mark.parametrize("rate", [0.0, 1 / LEVELS, 0.1, 1 / 3, 0.999])
def test_of_all_the_bits_there_are_the_share_is_exact(rate, monkeypatch):
    """With each of the 65,536 values of the bits once, the kept number is the rate rounded, and the mean is kept."""
    monkeypatch.setattr(model.dropout, "_bits16", lambda key, shape: jnp.arange(LEVELS, dtype=jnp.uint16))
    y = np.asarray(dropout(jnp.ones(LEVELS), jax.random.key(0), rate), np.float64)
    assert (y == 0).sum() == round(rate * LEVELS)
    assert abs(y.mean() - 1) < 1e-7


def test_rate_zero_is_the_identity():
    x = normal(3, 5)
    assert_same_bits(drop_out(x, 0, 0.0), x)


@pytest.mark.parametrize("shape", [(), (1,), (2, 7), (3, 8), (2, 0)])
def test_any_shape(shape):
    assert drop_out(np.ones(shape, np.float32), 0, 0.5).shape == shape


def test_a_key_is_a_mask():
    x = np.ones((64, 64), np.float32)
    assert_same_bits(drop_out(x, 1, 0.5), drop_out(x, 1, 0.5))
    agree = ((drop_out(x, 1, 0.5) == 0) == (drop_out(x, 2, 0.5) == 0)).mean()
    assert abs(agree - 0.5) < 0.05


def test_gradients_pass_where_values_did():
    x = normal(4, 6)
    gradient = compiled(jax.grad(lambda x: dropout(x, jax.random.key(0), 0.5).sum()))(x)
    assert_same_bits(gradient, drop_out(np.ones_like(x), 0, 0.5))


def test_rates_under_vmap_equal_separate_runs():
    x, rates = normal(4, 7), np.array([0.0, 0.1, 0.5], np.float32)
    together = compiled(jax.vmap(lambda rate: dropout(jnp.asarray(x), jax.random.key(0), rate)))(rates)
    assert_same_bits(list(together), [drop_out(x, 0, rate) for rate in rates])


def test_none_means_none():
    assert make_dropout(lambda: 1 / 0, None, None) is None
    key = jax.random.key(0)
    for rates in ((0.1, None), (None, 0.1), (0.0, 0.2)):
        assert make_dropout(lambda: key, *rates) == Dropout(key, *rates)


SIZES = {"d_model": 8, "num_heads": 2, "d_ff": 16, "max_length": 16, "positions": "none"}
LANGUAGE_MODEL = LanguageModel(LanguageModelConfig(**SIZES, num_layers=2), 11)
TRANSFORMER = Transformer(TransformerConfig(**SIZES, num_encoder_layers=2, num_decoder_layers=2), 11, 13)
MODELS = {  # the model, its token inputs, and the places that drop out: sublayer outputs and sums, and weights
    "language model": (LANGUAGE_MODEL, [token_ids(2, 5, vocab_size=11)], 1 + 2 * 2, 2),
    "transformer": (
        TRANSFORMER,
        [token_ids(2, 4, vocab_size=11), token_ids(2, 5, vocab_size=13)],
        2 + 2 * 2 + 2 * 3,
        6,
    ),
}


def forward(model, inputs, **rates):
    params = parameters(model, *(x.shape[1] for x in inputs))

    def apply(key, *rate):
        given = dict(zip(rates, rate))
        variables = jax.tree.map(jnp.asarray, {"params": params})
        return model.apply(variables, *map(jnp.asarray, inputs), **given, rngs={"dropout": key})

    return apply


@pytest.mark.parametrize("kind", MODELS)
def test_no_dropout_makes_no_random_bits(kind):
    model, inputs, sites, weight_sites = MODELS[kind]

    def drawn(*rates):
        names = ("dropout_rate", "attention_dropout_rate")
        given = {name: rate for name, rate in zip(names, rates) if rate is not None}
        return [
            e
            for e in traced(forward(model, inputs, **given), jax.random.key(0), *given.values())
            if e.primitive.name == "random_bits"
        ]

    assert len(drawn(None, None)) == 0
    assert len(drawn(0.1, None)) == sites
    assert len(drawn(None, 0.1)) == weight_sites
    assert len(drawn(0.1, 0.2)) == sites + weight_sites


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_no_two_places_share_a_key(kind, scan, monkeypatch):
    """Layers, the places in a layer, the embeddings, encoder and decoder: every mask is drawn from a key of its own."""
    model, inputs, sites, weight_sites = MODELS[kind]
    keys = []

    def recorded(key, shape):
        jax.debug.callback(lambda data: keys.append(tuple(data.tolist())), jax.random.key_data(key))
        return jnp.zeros(shape, jnp.uint16)

    monkeypatch.setattr("model.dropout._bits16", recorded)
    config = type(model.config)(**{**vars(model.config), "scan_layers": scan})
    model = model.clone(config=config)
    run = forward(model, inputs, dropout_rate=0.1, attention_dropout_rate=0.1)
    jax.block_until_ready(jax.jit(run)(jax.random.key(0), 0.1, 0.1))
    jax.effects_barrier()
    assert len(keys) == len(set(keys)) == sites + weight_sites


def test_a_model_under_vmap_over_rates_equals_separate_runs():
    model, inputs, *_ = MODELS["language model"]
    run = forward(model, inputs, dropout_rate=0, attention_dropout_rate=0)
    rates, key = (np.array([0.0, 0.3], np.float32), np.array([0.2, 0.1], np.float32)), jax.random.key(0)
    together = compiled(jax.vmap(run, in_axes=(None, 0, 0)))(key, *rates)
    separate = [compiled(run)(key, *each) for each in zip(*rates)]
    assert_near(list(together), separate, 1e-6)
    assert not np.allclose(separate[0], separate[1])


def test_bits_are_drawn_two_to_a_word():
    drawn = random_bits(lambda x, key: dropout(x, key, 0.1), jnp.zeros((4, 10)), jax.random.key(0))
    assert drawn == 4 * 5
