"""Layers unrolled, scanned and rematerialised: the same numbers, by different programs."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from model.config import LanguageModelConfig, TransformerConfig
from model.language_model import LanguageModel
from model.transformer import Transformer
from tests.model.jaxprs import traced
from tests.model.samples import assert_near, assert_same_bits, compiled, normal, parameters, token_ids

SIZES = {"d_model": 8, "num_heads": 2, "d_ff": 12, "max_length": 8}
LANGUAGE_MODEL = LanguageModelConfig(**SIZES, num_layers=3), (11,), [token_ids(2, 6, vocab_size=11)]
TRANSFORMER = (
    TransformerConfig(**SIZES, num_encoder_layers=2, num_decoder_layers=3),
    (11, 13),
    [token_ids(2, 4, vocab_size=11), token_ids(2, 6, vocab_size=13)],
)
KINDS = {"language model": LANGUAGE_MODEL, "transformer": TRANSFORMER}
WAYS = {
    "unrolled": {},
    "scanned": {"scan_layers": True},
    "rematerialised": {"remat": True},
    "scanned and rematerialised": {"scan_layers": True, "remat": True},
}


def build(kind, **changes):
    """A model, its parameters, and a function (params, key) -> (loss with dropout on, gradients)."""
    config, vocab_sizes, inputs = KINDS[kind]
    model = {"language model": LanguageModel, "transformer": Transformer}[kind](
        dataclasses.replace(config, **changes), *vocab_sizes
    )
    cotangent = normal(*inputs[-1].shape, vocab_sizes[-1])

    def loss(params, key):
        rates = {"dropout_rate": 0.2, "attention_dropout_rate": 0.1}
        logits = model.apply({"params": params}, *map(jnp.asarray, inputs), **rates, rngs={"dropout": key})
        return (logits * cotangent).sum(), logits

    return parameters(model, *(x.shape[1] for x in inputs)), jax.value_and_grad(loss, has_aux=True)


@functools.lru_cache(maxsize=None)
def result(kind, way):
    params, function = build(kind, **WAYS[way])
    return compiled(function)(params, jax.random.key(3))


@pytest.mark.parametrize("way", list(WAYS)[1:])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_numbers_with_dropout_on(kind, way):
    assert_near(result(kind, way), result(kind, "unrolled"), 1e-6)


@functools.lru_cache(maxsize=None)
def primitives(kind, way):
    params, function = build(kind, **WAYS[way])
    return [e.primitive.name for e in traced(function, params, jax.random.key(3))]


@pytest.mark.parametrize("kind", KINDS)
def test_by_different_programs(kind):
    """A comparison of one program with itself would prove nothing."""
    products = {way: primitives(kind, way).count("dot_general") for way in WAYS}
    stacks = 1 if kind == "language model" else 2
    for way in WAYS:
        assert primitives(kind, way).count("scan") == (2 * stacks if "scanned" in way else 0)  # forward and backward
        assert ("checkpoint" in primitives(kind, way)) == ("rematerialised" in way)
    assert products["scanned"] < products["unrolled"] / 2
    assert products["rematerialised"] > products["unrolled"]  # the forward products once more
    assert products["scanned and rematerialised"] > products["scanned"]


@pytest.mark.parametrize("way", ["unrolled", "scanned and rematerialised"])
@pytest.mark.parametrize("kind", KINDS)
def test_asking_for_attention_weights_changes_no_number(kind, way):
    config, vocab_sizes, inputs = KINDS[kind]
    model = {"language model": LanguageModel, "transformer": Transformer}[kind](
        dataclasses.replace(config, **WAYS[way]), *vocab_sizes
    )
    params = parameters(model, *(x.shape[1] for x in inputs))

    def apply(params, *inputs, **asked):
        rates = {"dropout_rate": 0.2, "attention_dropout_rate": 0.1}
        return model.apply({"params": params}, *inputs, **rates, rngs={"dropout": jax.random.key(0)}, **asked)

    plain = compiled(apply)(params, *inputs)
    logits, kept = compiled(lambda *args: apply(*args, mutable=["intermediates"]))(params, *inputs)
    assert_same_bits(logits, plain)
    shapes = {name: weights[0].shape for name, weights in kept["intermediates"].items()}
    if kind == "language model":
        assert shapes == {"self_attention": (3, 2, 2, 6, 6)}
    else:
        assert shapes == {
            "encoder_self_attention": (2, 2, 2, 4, 4),
            "decoder_self_attention": (3, 2, 2, 6, 6),
            "decoder_cross_attention": (3, 2, 2, 6, 4),
        }
    for (weights,) in kept["intermediates"].values():
        assert_near(weights.sum(axis=-1), np.ones(weights.shape[:-1]), 1e-6)  # before any dropout
