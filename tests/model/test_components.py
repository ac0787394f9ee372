"""Variants are functions handed in: RMSNorm, SwiGLU and rotary positions, written here, without touching `model/`."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from model.components import Component, default_components
from model.config import LanguageModelConfig, TransformerConfig
from model.initializers import init_linear
from model.language_model import LanguageModel
from model.linear import linear
from model.multi_head import init_multi_head_attention, multi_head_attention
from model.shapes import along_last_axis
from model.transformer import Transformer
from tests.model.samples import assert_finite, assert_near, compiled, normal, parameters, parameters_like, token_ids


def rms_norm(params, x):
    return x * jax.lax.rsqrt(jnp.mean(x**2, axis=-1, keepdims=True) + 1e-6) * along_last_axis(params["scale"], x)


def swiglu(params, x):
    return linear(params["output"], jax.nn.silu(linear(params["gate"], x)) * linear(params["hidden"], x))


def init_swiglu(key):
    keys = jax.random.split(key, 3)
    return {
        "gate": init_linear(keys[0], 8, 12, False),
        "hidden": init_linear(keys[1], 8, 12, False),
        "output": init_linear(keys[2], 12, 8, False),
    }


def rotary(x, positions):
    """Each pair of components turned by an angle in proportion to its position."""
    half = x.shape[-1] // 2
    frequencies = 10000.0 ** (-jnp.arange(half) / half)
    angles = positions[:, None, :, None] * frequencies[None, None, None, :]
    cos, sin = (jnp.broadcast_to(f(angles), (*x.shape[:-1], half)) for f in (jnp.cos, jnp.sin))
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def modern(config):
    return dataclasses.replace(
        default_components(config),
        norm=Component(lambda key: {"scale": jnp.ones(8)}, rms_norm),
        feed_forward=Component(init_swiglu, swiglu),
        rope=rotary,
    )


SIZES = {"d_model": 8, "num_heads": 2, "d_ff": 12, "max_length": 32, "positions": "none", "scan_layers": True}


@pytest.mark.parametrize("kind", ["language model", "transformer"])
def test_models_take_parts(kind):
    if kind == "language model":
        config, inputs = LanguageModelConfig(**SIZES, num_layers=2), [token_ids(2, 5, vocab_size=11)]
        model = LanguageModel(config, 11, modern(config))
    else:
        config = TransformerConfig(**SIZES, num_encoder_layers=1, num_decoder_layers=1)
        inputs = [token_ids(2, 4, vocab_size=11), token_ids(2, 5, vocab_size=13)]
        model = Transformer(config, 11, 13, modern(config))
    params = parameters(model, *(x.shape[1] for x in inputs))
    stack = params["layers" if kind == "language model" else "encoder"]
    assert set(stack["feed_forward"]) == {"gate", "hidden", "output"}
    assert set(stack["self_attention_norm"]) == {"scale"}

    def loss(params, *inputs):
        return (model.apply({"params": params}, *inputs) ** 2).sum()

    gradients = compiled(jax.grad(loss))(params, *inputs)
    assert_finite(gradients)
    assert all(np.any(leaf) for leaf in jax.tree.leaves(gradients))


def test_rotated_scores_depend_on_relative_positions_only():
    params = parameters_like(
        jax.eval_shape(lambda key: init_multi_head_attention(key, 8, 2, 2, 4, 4), jax.random.key(0))
    )
    attend = compiled(multi_head_attention, "num_heads", "num_kv_heads", "rope")
    x, positions = normal(2, 5, 8), np.array([[0, 1, 2, 5, 9]])

    def weights(positions, rope=rotary):
        return attend(params, x, x, num_heads=2, num_kv_heads=2, rope=rope, positions=positions).weights

    assert_near(weights(positions + 17), weights(positions), 1e-5)
    assert np.abs(weights(positions) - weights(2 * positions)).max() > 0.01
    assert np.abs(weights(positions) - weights(positions, None)).max() > 0.01


def test_a_rotated_language_model_knows_order_and_not_place():
    config = LanguageModelConfig(**SIZES, num_layers=2)
    model, tokens = LanguageModel(config, 11, modern(config)), token_ids(1, 6, vocab_size=11)
    params = parameters(model, 6)
    logits = compiled(
        lambda tokens, positions: model.apply(
            jax.tree.map(jnp.asarray, {"params": params}), tokens, positions=positions
        )
    )
    positions = np.arange(6)[None]
    assert_near(logits(tokens, positions + 20), logits(tokens, positions), 1e-5)
    swapped = tokens[:, [1, 0, 2, 3, 4, 5]]
    assert np.abs(logits(tokens, positions) - logits(swapped, positions))[:, 2:].max() > 1e-3


def test_the_rotation_sees_the_positions_of_packed_rows():
    """Padding and documents: what `positions` says reaches the rotation in every layer."""
    config, seen = LanguageModelConfig(**{**SIZES, "scan_layers": False}, num_layers=2), []

    def record(x, positions):
        seen.append(positions.shape)
        return x

    components = dataclasses.replace(default_components(config), rope=record)
    model, tokens = LanguageModel(config, 11, components), jnp.zeros((2, 4), jnp.int32)
    jax.eval_shape(lambda key: model.init(key, tokens, positions=jnp.zeros((2, 4), jnp.int32)), jax.random.key(0))
    assert seen == [(2, 4)] * 4
