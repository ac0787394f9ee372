"""Layers unrolled, scanned and rematerialised: the same numbers, by different programs."""

import dataclasses
import functools
from collections import Counter

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
LANGUAGE_MODEL = LanguageModelConfig(**SIZES, num_layers=2), (11,), [token_ids(2, 6, vocab_size=11)]
TRANSFORMER = (
    TransformerConfig(**SIZES, num_encoder_layers=2, num_decoder_layers=2),
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
    """A model of that kind."""
    config, vocab_sizes, _ = KINDS[kind]
    model = LanguageModel if kind == "language model" else Transformer
    return model(dataclasses.replace(config, **changes), *vocab_sizes)


RATES = {"dropout_rate": 0.2, "attention_dropout_rate": 0.1}


def loss_and_gradients(kind, way, dtype):
    """Parameters, and a function (params, key) -> ((loss with dropout on, logits), gradients)."""
    model, inputs = build(kind, **WAYS[way], dtype=dtype), KINDS[kind][2]
    cotangent = normal(*inputs[-1].shape, KINDS[kind][1][-1], dtype=dtype)

    def loss(params, key):
        logits = model.apply({"params": params}, *map(jnp.asarray, inputs), **RATES, rngs={"dropout": key})
        return (logits * cotangent).sum(), logits

    return parameters(model, *(x.shape[1] for x in inputs), dtype=dtype), jax.value_and_grad(loss, has_aux=True)


@functools.cache
def result(kind, way, dtype="float32"):
    with jax.enable_x64(dtype == "float64"):
        params, function = loss_and_gradients(kind, way, dtype)
        return compiled(function)(params, jax.random.key(3))


def distance(tree, other):
    """|x − y| / |y| for each leaf, the largest."""
    pairs = zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True)
    return max(np.linalg.norm(np.subtract(x, y)) / np.linalg.norm(y) for x, y in pairs)


@pytest.mark.parametrize("way", list(WAYS)[1:])
@pytest.mark.parametrize("kind", ["language model", pytest.param("transformer", marks=pytest.mark.slow)])  # 31 s in all
def test_the_same_numbers_with_dropout_on(kind, way):
    assert distance(result(kind, way), result(kind, "unrolled")) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_differs_is_rounding(kind):
    both = (result(kind, way, "float64") for way in ("scanned and rematerialised", "unrolled"))
    assert distance(*both) < 1e-13


@pytest.mark.parametrize("kind", KINDS)
def test_by_different_programs(kind):
    """A comparison of one program with itself would prove nothing."""
    count, config = {}, KINDS[kind][0]
    layers = [config.num_layers] if kind == "language model" else [config.num_encoder_layers, config.num_decoder_layers]
    for way in WAYS:
        params, function = loss_and_gradients(kind, way, "float32")
        count[way] = Counter(e.primitive.name for e in traced(function, params, jax.random.key(3)))
    for way in WAYS:
        scans, bodies = (2 * len(layers), len(layers)) if "scanned" in way else (0, sum(layers))
        assert count[way]["scan"] == scans  # forward and backward
        assert count[way]["remat2"] == (bodies if "rematerialised" in way else 0)
    assert count["scanned"]["dot_general"] < count["unrolled"]["dot_general"]
    for way in ("", "scanned and "):  # the forward products of each layer again, but for the last, which nothing needs
        more = count[f"{way}rematerialised"]["dot_general"] - count["scanned" if way else "unrolled"]["dot_general"]
        blocks = [1] * len(layers) if way else layers
        assert more == sum(number * products for number, products in zip(blocks, (7, 13)))


@pytest.mark.parametrize(
    ("kind", "way"), [("language model", "scanned and rematerialised"), ("transformer", "unrolled")]
)
def test_asking_for_attention_weights_changes_no_number(kind, way):
    model, inputs = build(kind, **WAYS[way]), KINDS[kind][2]
    params = parameters(model, *(x.shape[1] for x in inputs))

    def apply(params, *inputs, **asked):
        return model.apply({"params": params}, *inputs, **RATES, rngs={"dropout": jax.random.key(0)}, **asked)

    plain = compiled(apply)(params, *inputs)
    logits, kept = compiled(lambda *args: apply(*args, mutable=["intermediates"]))(params, *inputs)
    assert_same_bits(logits, plain)
    shapes = {name: weights[0].shape for name, weights in kept["intermediates"].items()}
    if kind == "language model":
        assert shapes == {"self_attention": (2, 2, 2, 6, 6)}
    else:
        assert shapes == {
            "encoder_self_attention": (2, 2, 2, 4, 4),
            "decoder_self_attention": (2, 2, 2, 6, 6),
            "decoder_cross_attention": (2, 2, 2, 6, 4),
        }
    for (weights,) in kept["intermediates"].values():
        assert_near(weights.sum(axis=-1), np.ones(weights.shape[:-1]), 1e-6)  # before any dropout
