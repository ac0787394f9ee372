"""One encoder and one decoder block: H = X + MHA(LN(X)), Y = H + FFN(LN(H)) (theory, section 4; Xiong et al. 2020).

The decoder has attention over the encoder's output between the two. Each sublayer sits in a residual connection, and
`norm_position` says where its norm goes: "pre" norms what enters the sublayer, "post" (the paper) norms the sum.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
from jaxtyping import Bool, Float, Int, Key

from model.components import BlockComponents
from model.config import BlockConfig
from model.dropout import Dropout, dropout
from model.multi_head import KeyValue, PositionFn, init_multi_head_attention, multi_head_attention, project_kv
from model.shapes import Array, Params

Weights = dict[str, Float[Array, "..."]]
"""Attention weights by sublayer, "self_attention" [B, H, T, T] and "cross_attention" [B, H, T, S]."""


def init_encoder_block(key: Key[Array, ""], config: BlockConfig, components: BlockComponents) -> Params:
    """Parameters of one block: each sublayer under its name, and its norm under name + "_norm"."""
    return _init_block(key, config, components, ("self_attention",))


def init_decoder_block(key: Key[Array, ""], config: BlockConfig, components: BlockComponents) -> Params:
    """As `init_encoder_block`, with "cross_attention" as well."""
    return _init_block(key, config, components, ("self_attention", "cross_attention"))


def encoder_block(
    params: Params,
    x: Float[Array, "B T D"],
    *,
    config: BlockConfig,
    components: BlockComponents,
    mask: Bool[Array, "..."] | None = None,
    positions: Int[Array, "#B T"] | None = None,
    drop: Dropout | None = None,
) -> tuple[Float[Array, "B T D"], Weights]:
    """Self-attention, then the feed-forward network. Under a causal mask it is the language model's block.

    Returns:
      The new x, and {"self_attention": weights [B, H, T, T]}.
    """
    setting = {"config": config, "components": components, "drop": drop}
    x, weights, _ = _attention(params, "self_attention", x, None, mask, components.rope, positions, **setting)
    return _feed_forward(params, x, **setting), {"self_attention": weights}


def decoder_block(
    params: Params,
    x: Float[Array, "B T D"],
    memory: Float[Array, "B S D"],
    *,
    config: BlockConfig,
    components: BlockComponents,
    mask: Bool[Array, "..."] | None = None,
    memory_mask: Bool[Array, "..."] | None = None,
    positions: Int[Array, "#B T"] | None = None,
    drop: Dropout | None = None,
) -> tuple[Float[Array, "B T D"], Weights]:
    """Self-attention, attention over the encoder's output `memory`, then the feed-forward network.

    Returns:
      The new x, and the weights of "self_attention" [B, H, T, T] and "cross_attention" [B, H, T, S].
    """
    setting = {"config": config, "components": components, "drop": drop}
    x, weights, _ = _attention(params, "self_attention", x, None, mask, components.rope, positions, **setting)
    x, cross_weights, _ = _attention(params, "cross_attention", x, memory, memory_mask, **setting)
    return _feed_forward(params, x, **setting), {"self_attention": weights, "cross_attention": cross_weights}


def block_with_cache(
    params: Params,
    x: Float[Array, "B T D"],
    update_cache: Callable[[KeyValue], KeyValue],
    memory: KeyValue | None = None,
    *,
    config: BlockConfig,
    components: BlockComponents,
    mask: Bool[Array, "..."],
    memory_mask: Bool[Array, "..."] | None = None,
    positions: Int[Array, "#B T"],
) -> tuple[Float[Array, "B T D"], KeyValue]:
    """The block for new positions `x` of a sequence whose keys and values are kept: decoding.

    Args:
      remember: the keys and values of `x` -> those of all positions, as they are kept (`model.cache`).
      memory: the encoder's output, projected; None in an encoder block or a language model's. It may have fewer rows
        than `x`: each answers as many rows of `x` that follow each other (the beams of one sentence).

    Returns:
      The new x, and what `update_cache` gave.
    """
    setting = {"config": config, "components": components, "drop": None}
    x, _, past = _attention(
        params, "self_attention", x, None, mask, components.rope, positions, update_cache=update_cache, **setting
    )
    if memory is not None:
        together = x.reshape(memory.key.shape[0], -1, x.shape[-1])
        x = _attention(params, "cross_attention", together, memory, memory_mask, **setting)[0].reshape(x.shape)
    return _feed_forward(params, x, **setting), past


def _attention(
    params: Params,
    name: str,
    x: Array,
    memory: Array | KeyValue | None,
    mask: Array | None,
    rope: PositionFn | None = None,
    positions: Array | None = None,
    *,
    config: BlockConfig,
    components: BlockComponents,
    drop: Dropout | None,
    update_cache: Callable[[KeyValue], KeyValue] | None = None,
) -> tuple[Array, Array, KeyValue | None]:
    """H = X + MHA(LN(X)), over `memory` if there is one and over itself if not; the weights; what `update_cache` gave."""
    y = _pre_norm(params[f"{name}_norm"], x, config, components)
    rotation, past = {"rope": rope, "positions": positions}, None
    if update_cache is not None:
        own = project_kv(params[name], y, num_kv_heads=config.kv_heads, dtype=config.dtype, **rotation)
        memory = past = update_cache(own)
    y, weights = multi_head_attention(
        params[name],
        y,
        y if memory is None else memory,
        mask,
        num_heads=config.num_heads,
        num_kv_heads=config.kv_heads,
        drop=_site(drop, f"{name} weights"),
        dtype=config.dtype,
        **rotation,
    )
    return _residual(params[f"{name}_norm"], x, y, config, components, _site(drop, name)), weights, past


def _feed_forward(
    params: Params, x: Array, *, config: BlockConfig, components: BlockComponents, drop: Dropout | None
) -> Array:
    """Y = H + FFN(LN(H))."""
    y = _pre_norm(params["feed_forward_norm"], x, config, components)
    y = components.feed_forward.apply(params["feed_forward"], y)
    return _residual(params["feed_forward_norm"], x, y, config, components, _site(drop, "feed_forward"))


def _pre_norm(norm: Params, x: Array, config: BlockConfig, components: BlockComponents) -> Array:
    """What a sublayer is given. The residual keeps `x` itself: a zero sublayer leaves a pre-norm block the identity."""
    return components.norm.apply(norm, x) if config.norm_position == "pre" else x


def _residual(
    norm: Params, x: Array, y: Array, config: BlockConfig, components: BlockComponents, drop: Dropout | None
) -> Array:
    """The residual sum of `x` and what the sublayer made of it."""
    total = x + (y if drop is None else dropout(y, drop.key, drop.rate))
    return total if config.norm_position == "pre" else components.norm.apply(norm, total)


DROPOUT_SITES = (
    "self_attention weights",
    "self_attention",
    "cross_attention weights",
    "cross_attention",
    "feed_forward",
)
"""The places of a block that drop out, numbered by position: each has a key of its own."""


def _site(drop: Dropout | None, name: str) -> Dropout | None:
    return None if drop is None else drop.at(DROPOUT_SITES.index(name))


def _init_block(key: Array, config: BlockConfig, components: BlockComponents, attentions: tuple[str, ...]) -> Params:
    keys = iter(jax.random.split(key, 2 * len(attentions) + 2))
    widths = (config.d_model, config.num_heads, config.kv_heads, config.key_width, config.value_width)
    params = {}
    for name in attentions:
        params[name] = init_multi_head_attention(next(keys), *widths, config.attention_bias)
        params[f"{name}_norm"] = components.norm.init(next(keys))
    params["feed_forward"] = components.feed_forward.init(next(keys))
    params["feed_forward_norm"] = components.norm.init(next(keys))
    return params
