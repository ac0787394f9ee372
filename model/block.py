"""Encoder and decoder block: H = X + MHA(LN(X)), Y = H + FFN(LN(H)) (Xiong et al. 2020, Fig. 1b).

The decoder has cross-attention over the encoder's output between the two. Each sublayer has a residual connection, and
`norm_position` says where its norm is: "pre" normalises the sublayer's input, "post" (Vaswani et al. 2017, §3.1) the
sum.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
from jaxtyping import Bool, Float, Int, Key

from model.components import BlockComponents
from model.config import BlockConfig
from model.dropout import Dropout, dropout
from model.multi_head import KeyValue, init_multi_head_attention, multi_head_attention, project_kv
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
    x, weights, _ = _self_attention(params, x, mask, positions, config, components, drop)
    return _feed_forward(params, x, config, components, drop), {"self_attention": weights}


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
    """Self-attention, cross-attention over the encoder's output `memory`, then the feed-forward network.

    Returns:
      The new x, and the weights of "self_attention" [B, H, T, T] and "cross_attention" [B, H, T, S].
    """
    x, weights, _ = _self_attention(params, x, mask, positions, config, components, drop)
    x, cross_weights = _cross_attention(params, x, memory, memory_mask, config, components, drop)
    x = _feed_forward(params, x, config, components, drop)
    return x, {"self_attention": weights, "cross_attention": cross_weights}


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
    key_positions: Int[Array, "#B N"],
) -> tuple[Float[Array, "B T D"], KeyValue]:
    """The block for new positions `x` of a sequence whose keys and values are cached: prefill and decode steps.

    Args:
      update_cache: the keys and values of `x` -> those of all slots of the cache (`model.cache.cache_update`).
      memory: the encoder's output, projected; None in an encoder block or a language model's. It may have fewer rows
        than `x`: each serves as many rows of `x` that follow each other (the beams of one sentence).
      positions, key_positions: of the tokens of `x`, and of those in the slots of the cache.

    Returns:
      The new x, and what `update_cache` gave.
    """
    x, _, past = _self_attention(params, x, mask, positions, config, components, None, update_cache, key_positions)
    if memory is not None:
        together = x.reshape(memory.key.shape[0], -1, x.shape[-1])
        x = _cross_attention(params, together, memory, memory_mask, config, components, None)[0].reshape(x.shape)
    return _feed_forward(params, x, config, components, None), past


def _self_attention(
    params: Params,
    x: Array,
    mask: Array | None,
    positions: Array | None,
    config: BlockConfig,
    components: BlockComponents,
    drop: Dropout | None,
    update_cache: Callable[[KeyValue], KeyValue] | None = None,
    key_positions: Array | None = None,
) -> tuple[Array, Array, KeyValue | None]:
    """Compute H = X + MHA(LN(X)), its weights, and the updated keys and values where there is a cache."""
    own, norm = params["self_attention"], params["self_attention_norm"]
    y, past = _pre_norm(norm, x, config, components), None
    if update_cache is not None:
        kv_heads, rope = config.kv_heads, components.rope
        past = update_cache(
            project_kv(own, y, num_kv_heads=kv_heads, rope=rope, positions=positions, dtype=config.dtype)
        )
    y, weights = multi_head_attention(
        own,
        y,
        y if past is None else past,
        mask,
        num_heads=config.num_heads,
        num_kv_heads=config.kv_heads,
        attention=components.self_attention,
        rope=components.rope,
        positions=positions,
        key_positions=key_positions,
        drop=_site(drop, "self_attention weights"),
        dtype=config.dtype,
    )
    return _residual(norm, x, y, config, components, _site(drop, "self_attention")), weights, past


def _cross_attention(
    params: Params,
    x: Array,
    memory: Array | KeyValue,
    mask: Array | None,
    config: BlockConfig,
    components: BlockComponents,
    drop: Dropout | None,
) -> tuple[Array, Array]:
    """Compute H = X + MHA(LN(X), M), and its weights."""
    norm = params["cross_attention_norm"]
    y, weights = multi_head_attention(
        params["cross_attention"],
        _pre_norm(norm, x, config, components),
        memory,
        mask,
        num_heads=config.num_heads,
        num_kv_heads=config.kv_heads,
        attention=components.cross_attention,
        drop=_site(drop, "cross_attention weights"),
        dtype=config.dtype,
    )
    return _residual(norm, x, y, config, components, _site(drop, "cross_attention")), weights


def _feed_forward(
    params: Params, x: Array, config: BlockConfig, components: BlockComponents, drop: Dropout | None
) -> Array:
    """Y = H + FFN(LN(H))."""
    y = _pre_norm(params["feed_forward_norm"], x, config, components)
    y = components.feed_forward.apply(params["feed_forward"], y)
    return _residual(params["feed_forward_norm"], x, y, config, components, _site(drop, "feed_forward"))


def _pre_norm(norm: Params, x: Array, config: BlockConfig, components: BlockComponents) -> Array:
    """Return a sublayer's input.

    The residual keeps `x` itself: a zero sublayer leaves a pre-norm block the identity.
    """
    return components.norm.apply(norm, x) if config.norm_position == "pre" else x


def _residual(
    norm: Params, x: Array, y: Array, config: BlockConfig, components: BlockComponents, drop: Dropout | None
) -> Array:
    """Return the residual sum of `x` and the sublayer's output."""
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
