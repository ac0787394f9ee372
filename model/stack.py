"""A stack of layers: embeddings and positions, the blocks one after another, and the final norm.

Layers have their parameters stacked along a leading axis L, and run unrolled, scanned or rematerialised. All three give
the same numbers with dropout on, because a layer's dropout key is folded from its index; and since the parameters are
always stacked, the checkpoint layout is independent of scan and remat.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Bool, Float, Int, Key

from model.block import Weights, block_with_cache
from model.cache import Cache, allocate_slots, cache_update, nan_on_overflow
from model.components import BlockComponents
from model.config import BlockConfig
from model.dropout import Dropout, dropout
from model.embedding import embed
from model.multi_head import KeyValue
from model.shapes import Array, Params

Block = Callable[[Params, Array, Dropout | None], tuple[Array, Weights]]
"""(parameters of one layer, x, dropout) -> (x, attention weights)."""


def stack_input(
    table: Float[Array, "V D"],
    position_params: Params | None,
    tokens: Int[Array, "B T"],
    positions: Int[Array, "#B T"] | None,
    *,
    config: BlockConfig,
    components: BlockComponents,
    drop: Dropout | None,
) -> tuple[Float[Array, "B T D"], Int[Array, "#B T"]]:
    """Scaled embeddings plus positions, dropped out; and the positions, 0 … T−1 unless given (packed rows, decoding).

    Raises:
      ValueError: more tokens than `config.max_length`, when the program is traced.
    """
    length = tokens.shape[1]
    if length > config.max_length:
        raise ValueError(f"a sequence of {length} tokens is longer than max_length={config.max_length}")
    positions = jnp.arange(length)[None] if positions is None else positions
    x = embed(table, tokens)
    x = x.astype(jnp.promote_types(x.dtype, config.dtype))  # what the products will return: wider only for float64
    x = x + jnp.broadcast_to(components.positions.apply(position_params or {}, positions), x.shape)
    return x if drop is None else dropout(x, drop.key, drop.rate), positions


def stack_output(norm: Params | None, x: Float[Array, "B T D"], components: BlockComponents) -> Float[Array, "B T D"]:
    """Apply the final norm, which a pre-norm stack needs: its residual stream is normed nowhere else."""
    return x if norm is None else components.norm.apply(norm, x)


def init_layers(init_block: Callable[[Array], Params], key: Key[Array, ""], num_layers: int) -> Params:
    """Initialize `num_layers` blocks, each from a key of its own, every leaf with a leading axis L."""
    return jax.vmap(init_block)(jax.random.split(key, num_layers))


def apply_layers(
    block: Block,
    params: Params,
    x: Float[Array, "B T D"],
    *,
    drop: Dropout | None = None,
    scan: bool = False,
    remat: bool = False,
    return_attention_weights: bool = False,
) -> tuple[Float[Array, "B T D"], Weights | None]:
    """Apply `block` once for each layer in `params`.

    Args:
      scan: compile one layer and loop, instead of L copies.
      remat: keep only each layer's input for the backward pass.
      return_attention_weights: also return the attention weights, stacked to [L, B, H, T, S].
    """

    def layer(x: Array, layer_and_index: tuple[Params, Array]) -> tuple[Array, Weights | None]:
        layer_params, index = layer_and_index
        x, weights = block(layer_params, x, None if drop is None else drop.at(index))
        return x, weights if return_attention_weights else None

    if remat:
        layer = jax.checkpoint(layer)
    num_layers = jax.tree.leaves(params)[0].shape[0]
    indices = jnp.arange(num_layers)
    if scan:
        return lax.scan(layer, x, (params, indices))
    kept = []
    for i, layer_params in enumerate(split_layers(params)):
        x, weights = layer(x, (layer_params, indices[i]))
        kept.append(weights)
    return x, jax.tree.map(lambda *each: jnp.stack(each), *kept) if return_attention_weights else None


def split_layers(params: Params | tuple[Params, ...]) -> tuple[Params, ...]:
    """The parameters of each layer by itself. Split ones stay as they are: who loops over tokens splits before it."""
    if isinstance(params, tuple):
        return params
    leaves, tree = jax.tree.flatten(params)
    num_layers = leaves[0].shape[0]
    # lax.split, and not indexing: its gradient is one concatenation instead of L sums of mostly zeros.
    split = [lax.split(leaf, (1,) * num_layers) for leaf in leaves]
    return tuple(tree.unflatten([jnp.squeeze(pieces[i], axis=0) for pieces in split]) for i in range(num_layers))


def stack_with_cache(
    params: Params | tuple[Params, ...],
    cache: Cache,
    table: Float[Array, "V D"],
    position_params: Params | None,
    tokens: Int[Array, "B T"],
    valid: Bool[Array, "B T"],
    *,
    config: BlockConfig,
    components: BlockComponents,
    memory: tuple[KeyValue, ...] | None = None,
    memory_mask: Bool[Array, "..."] | None = None,
) -> tuple[Cache, Float[Array, "B T D"]]:
    """Apply `stack_input` and every layer to the next `tokens` of a sequence in `cache`; return the updated cache too.

    Layers are unrolled, also where `config.scan_layers` loops over them: a loop would copy each layer's cache.

    Args:
      valid: False at padding.
      memory: for each layer the encoder's output, projected. None: there is no encoder.
    """
    cache, slots = allocate_slots(cache, valid)
    x, _ = stack_input(table, position_params, tokens, slots.positions, config=config, components=components, drop=None)
    x, layers = nan_on_overflow(x, slots), []
    for i, (layer, past) in enumerate(zip(split_layers(params), cache.layers, strict=True)):
        known = None if memory is None else memory[i]
        x, past = block_with_cache(
            layer,
            x,
            cache_update(past, slots, config.dtype),
            known,
            config=config,
            components=components,
            mask=slots.mask,
            memory_mask=memory_mask,
            positions=slots.positions,
            key_positions=slots.key_positions,
        )
        layers.append(past)
    return cache._replace(layers=tuple(layers)), x
