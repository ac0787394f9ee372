"""The exchangeable components of a block: norm, feed-forward network, positions, rotation, attention.

A config names the standard ones. A variant is a function handed in, not a flag:

    components = dataclasses.replace(default_components(config), norm=Component(init_my_norm, my_norm))
    LanguageModel(config, vocab_size, components)

so an experiment can change what a block is made of without touching `model/`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import jax.numpy as jnp
from jaxtyping import Array, Key

from model.config import BlockConfig
from model.embedding import embedding_lookup
from model.feed_forward import ACTIVATIONS, feed_forward, init_feed_forward, init_swiglu, swiglu
from model.initializers import init_embedding
from model.multi_head import AttentionFn, standard_attention
from model.normalization import init_layer_norm, init_rms_norm, layer_norm, rms_norm
from model.positions import PositionFn, rotary_positions, sinusoidal_positions
from model.shapes import Params


@dataclass(frozen=True)
class Component:
    """An (init, apply) pair of pure functions."""

    init: Callable[[Key[Array, ""]], Params] | None
    """key -> params; None if there are none. A leaf named "kernel" gets weight decay, other names are left alone."""
    apply: Callable[[Params, Array], Array]
    """(params, x) -> y."""


@dataclass(frozen=True)
class BlockComponents:
    """The components of a block: norms, feed-forward network, positions, rotation and attention."""

    norm: Component
    """[B, T, D] -> [B, T, D]."""
    feed_forward: Component
    """[B, T, D] -> [B, T, D]."""
    positions: Component
    """Positions [B, T] (integers) -> [B, T, D], added to the scaled embeddings."""
    rope: PositionFn | None = None
    """Applied to the queries and keys of self-attention; None: nothing."""
    self_attention: AttentionFn = standard_attention
    """What each head computes, over its own sequence: see `model.multi_head.AttentionFn`."""
    cross_attention: AttentionFn = standard_attention
    """As `self_attention`, of the decoder over the encoder's output."""


def default_components(config: BlockConfig) -> BlockComponents:
    """Return the components that `config` names."""
    d_model, bias = config.d_model, config.feed_forward_bias
    positions = {
        "sinusoidal": Component(
            None,
            lambda params, ids: embedding_lookup(jnp.asarray(sinusoidal_positions(config.max_length, d_model)), ids),
        ),
        "learned": Component(
            lambda key: {"table": init_embedding(key, config.max_length, d_model)},
            lambda params, ids: embedding_lookup(params["table"], ids),
        ),
        "none": Component(
            None,
            lambda params, ids: jnp.zeros((*ids.shape, d_model), jnp.float32),
        ),
    }
    return BlockComponents(
        norm=Component(lambda key: init_layer_norm(d_model, bias), layer_norm),
        feed_forward=Component(
            lambda key: init_feed_forward(key, d_model, config.d_ff, bias),
            lambda params, x: feed_forward(params, x, ACTIVATIONS[config.activation], config.dtype),
        ),
        positions=positions[config.positions],
    )


def rotary_components(config: BlockConfig) -> BlockComponents:
    """Return the components that `config` names, with rotary positions in self-attention.

    Raises:
      ValueError: heads of odd width.
    """
    return replace(default_components(config), rope=rotary_positions(config))


def modern_components(config: BlockConfig) -> BlockComponents:
    """Return rotary positions, RMSNorm and SwiGLU: today's usual decoder-only model, with `positions="none"`."""
    return replace(
        rotary_components(config),
        norm=Component(lambda key: init_rms_norm(config.d_model), rms_norm),
        feed_forward=Component(
            lambda key: init_swiglu(key, config.d_model, config.d_ff),
            lambda params, x: swiglu(params, x, config.dtype),
        ),
    )
