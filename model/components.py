"""The exchangeable parts of a block: norm, feed-forward network, positions, rotation.

A config names the standard ones. A variant is a function handed in, not a flag:

    parts = dataclasses.replace(standard_parts(config), norm=Part(init_rms_norm, rms_norm), rotate=rotary(config))
    LanguageModel(config, vocab_size, parts)

so an experiment can change what a block is made of without touching `model/`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Key

from model.config import BlockConfig
from model.embedding import embedding_lookup
from model.feed_forward import ACTIVATIONS, feed_forward, init_feed_forward
from model.initializers import init_embedding
from model.multi_head import PositionFn
from model.normalization import init_layer_norm, layer_norm
from model.positions import sinusoidal_positions
from model.shapes import Params


@dataclass(frozen=True)
class Component:
    """Two pure functions: how the parameters start, and what is done with them."""

    init: Callable[[Key[Array, ""]], Params] | None
    """key -> params; None if there are none. A leaf named "kernel" gets weight decay, other names are left alone."""
    apply: Callable[[Params, Array], Array]
    """(params, x) -> y."""


@dataclass(frozen=True)
class BlockComponents:
    """What a block is made of, besides attention."""

    norm: Component
    """[B, T, D] -> [B, T, D]."""
    feed_forward: Component
    """[B, T, D] -> [B, T, D]."""
    positions: Component
    """Positions [B, T] (integers) -> [B, T, D], added to the scaled embeddings."""
    rope: PositionFn | None = None
    """Applied to the queries and keys of self-attention; None: nothing."""


def default_components(config: BlockConfig) -> BlockComponents:
    """The parts that `config` names."""
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
