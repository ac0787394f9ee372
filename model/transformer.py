"""The encoder–decoder Transformer of *Attention Is All You Need*, with pre-norm blocks unless asked otherwise.

Pure functions of nested parameters, and a thin Flax shell that holds them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int, Num

from model.block import Weights, decoder_block, encoder_block, init_decoder_block, init_encoder_block
from model.cache import Cache, to_cache_format
from model.components import BlockComponents, default_components
from model.config import TransformerConfig
from model.dropout import Dropout, make_dropout
from model.embedding import unembed
from model.initializers import init_embedding, init_linear
from model.linear import linear
from model.masks import PAD_ID, causal_mask, padding_mask
from model.multi_head import KeyValue, project_kv
from model.shapes import Array, Params
from model.stack import apply_layers, init_layers, split_layers, stack_input, stack_output, stack_with_cache


def init_transformer(
    config: TransformerConfig, source_vocab_size: int, target_vocab_size: int, components: BlockComponents
) -> dict[str, Callable[[Array], Params]]:
    """Return an initialiser for each top-level parameter: key -> nested dict.

    "encoder" and "decoder" (every leaf with a leading axis L), "embedding" (shared) or "source_embedding" and
    "target_embedding", and where the model has them "unembedding" (separate), "source_positions" and
    "target_positions" (learned), "encoder_norm" and "decoder_norm" (pre-norm).

    Raises:
      ValueError: shared embeddings with vocabularies of different size.
    """
    width = config.d_model
    if config.embeddings == "shared" and source_vocab_size != target_vocab_size:
        raise ValueError(
            "embeddings='shared' wants one vocabulary for both sides, got source and target vocabularies of "
            f"{source_vocab_size} and {target_vocab_size}"
        )

    def table(rows: int) -> Callable[[Array], Params]:
        return lambda key: {"table": init_embedding(key, rows, width)}

    shared, norm = config.embeddings == "shared", components.norm.init if config.norm_position == "pre" else None
    encoder = partial(init_encoder_block, config=config, components=components)
    decoder = partial(init_decoder_block, config=config, components=components)
    inits = {
        "embedding": table(source_vocab_size) if shared else None,
        "source_embedding": None if shared else table(source_vocab_size),
        "target_embedding": None if shared else table(target_vocab_size),
        "source_positions": components.positions.init,
        "target_positions": components.positions.init,
        "encoder": partial(init_layers, encoder, num_layers=config.num_encoder_layers),
        "encoder_norm": norm,
        "decoder": partial(init_layers, decoder, num_layers=config.num_decoder_layers),
        "decoder_norm": norm,
        "unembedding": partial(init_linear, fan_in=width, fan_out=target_vocab_size, bias=False)
        if config.embeddings == "separate"
        else None,
    }
    return {name: init for name, init in inits.items() if init is not None}


def encode(
    params: Params,
    source: Int[Array, "B S"],
    *,
    config: TransformerConfig,
    components: BlockComponents,
    source_valid: Bool[Array, "B S"],
    drop: Dropout | None = None,
    return_attention_weights: bool = False,
) -> tuple[Float[Array, "B S D"], Weights | None]:
    """Encode the source: one vector per source token, and the weights of self-attention [L, B, H, S, S]."""
    x, positions = stack_input(
        params["embedding" if config.embeddings == "shared" else "source_embedding"]["table"],
        params.get("source_positions"),
        source,
        None,
        config=config,
        components=components,
        drop=None if drop is None else drop.at(0),
    )
    mask = padding_mask(source_valid)

    def block(layer: Params, x: Array, drop: Dropout | None) -> tuple[Array, Weights]:
        return encoder_block(layer, x, config=config, components=components, mask=mask, positions=positions, drop=drop)

    x, weights = apply_layers(
        block,
        params["encoder"],
        x,
        drop=None if drop is None else drop.at(1),
        scan=config.scan_layers,
        remat=config.remat,
        return_attention_weights=return_attention_weights,
    )
    return stack_output(params.get("encoder_norm"), x, components), weights


def decode(
    params: Params,
    target: Int[Array, "B T"],
    memory: Float[Array, "B S D"],
    *,
    config: TransformerConfig,
    components: BlockComponents,
    source_valid: Bool[Array, "B S"],
    drop: Dropout | None = None,
    return_attention_weights: bool = False,
) -> tuple[Float[Array, "B T D"], Weights | None]:
    """Compute the features at each of `target`, and the weights of self- and cross-attention by layer."""
    x, positions = stack_input(
        params["embedding" if config.embeddings == "shared" else "target_embedding"]["table"],
        params.get("target_positions"),
        target,
        None,
        config=config,
        components=components,
        drop=None if drop is None else drop.at(2),
    )
    setting = {"config": config, "components": components, "positions": positions}
    masks = {"mask": causal_mask(target.shape[1]), "memory_mask": padding_mask(source_valid)}

    def block(layer: Params, x: Array, drop: Dropout | None) -> tuple[Array, Weights]:
        return decoder_block(layer, x, memory, drop=drop, **masks, **setting)

    x, weights = apply_layers(
        block,
        params["decoder"],
        x,
        drop=None if drop is None else drop.at(3),
        scan=config.scan_layers,
        remat=config.remat,
        return_attention_weights=return_attention_weights,
    )
    return stack_output(params.get("decoder_norm"), x, components), weights


def precompute_cross_kv(
    params: Params, memory: Float[Array, "B S D"], *, config: TransformerConfig, source_valid: Bool[Array, "B S"]
) -> tuple[KeyValue, ...]:
    """Compute the keys and values of each decoder layer's cross-attention, once for all target tokens."""

    def project(layer: Params) -> KeyValue:
        projected = project_kv(layer["cross_attention"], memory, num_kv_heads=config.kv_heads, dtype=config.dtype)
        return to_cache_format(projected, source_valid, config.dtype)

    return tuple(map(project, split_layers(params["decoder"])))


def transformer_with_cache(
    params: Params,
    cache: Cache,
    target: Int[Array, "B T"],
    memory: tuple[KeyValue, ...],
    *,
    config: TransformerConfig,
    components: BlockComponents,
    source_valid: Bool[Array, "..."],
    valid: Bool[Array, "B T"] | None = None,
) -> tuple[Cache, Float[Array, "B T D"]]:
    """Compute `decode` at the next tokens of the targets in `cache`, and the updated cache.

    Args:
      params: "decoder" may have been through `split_layers`.
      cache: from `empty_cache`, or from here.
      memory: from `precompute_cross_kv`. It and `source_valid` may have fewer rows than `target`: each is the source of
        as many targets that follow each other.
      valid: False at padding, which takes slots but no positions, and which no token sees. None: there is none.
    """
    cache, x = stack_with_cache(
        params["decoder"],
        cache,
        params["embedding" if config.embeddings == "shared" else "target_embedding"]["table"],
        params.get("target_positions"),
        target,
        jnp.ones(target.shape, bool) if valid is None else valid,
        config=config,
        components=components,
        memory=memory,
        memory_mask=padding_mask(source_valid),
    )
    return cache, stack_output(params.get("decoder_norm"), x, components)


def transformer_logits(
    params: Params, features: Float[Array, "B T D"], *, config: TransformerConfig
) -> Float[Array, "B T V"]:
    """Compute the logits of the next target token after each position, by the target embedding itself if it is tied."""
    if config.embeddings == "separate":
        return linear(params["unembedding"], features, config.dtype)
    name = "embedding" if config.embeddings == "shared" else "target_embedding"
    return unembed(params[name]["table"], features, config.dtype)


class Transformer(nn.Module):
    """p(target t+1 | target 0 … t, source) as a Flax module.

    `init(rng, source, target)["params"]` gives the parameters and `apply({"params": params}, source, target)` the
    logits [B, T, V]. With `mutable=["intermediates"]` the second result holds the attention weights of every layer and
    head: "encoder_self_attention" [L, B, H, S, S], "decoder_self_attention" [L, B, H, T, T], "decoder_cross_attention"
    [L, B, H, T, S]; asking changes no number. For dropout hand in `dropout_rate` (a number or a traced array) and
    `rngs={"dropout": key}`; without, there is none. `encode` and `decode` are the two halves, for decoding:
    `apply({"params": params}, source, method="encode")`.
    """

    config: TransformerConfig
    source_vocab_size: int
    target_vocab_size: int
    components: BlockComponents | None = None
    """None: the standard parts, which the config names."""

    @property
    def max_length(self) -> int:
        """Return the tokens of the longest sequence."""
        return self.config.max_length

    def setup(self):
        self._components = self.components or default_components(self.config)
        inits = init_transformer(self.config, self.source_vocab_size, self.target_vocab_size, self._components)
        self._params = {name: self.param(name, init) for name, init in inits.items()}

    def __call__(self, source: Int[Array, "B S"], target: Int[Array, "B T"], **options) -> Float[Array, "B T V"]:
        """Logits of the token after each of `target`; options as in `features`."""
        return self.logits(self.features(source, target, **options))

    def features(
        self,
        source: Int[Array, "B S"],
        target: Int[Array, "B T"],
        *,
        source_valid: Bool[Array, "B S"] | None = None,
        dropout_rate: Num[Array, ""] | float | None = None,
        attention_dropout_rate: Num[Array, ""] | float | None = None,
    ) -> Float[Array, "B T D"]:
        """`encode`, then `decode`; `source_valid` is where `source` is not 0 unless given."""
        rates = {"dropout_rate": dropout_rate, "attention_dropout_rate": attention_dropout_rate}
        source_valid = source != PAD_ID if source_valid is None else source_valid
        memory = self.encode(source, source_valid=source_valid, **rates)
        return self.decode(target, memory, source_valid=source_valid, **rates)

    def encode(
        self,
        source: Int[Array, "B S"],
        *,
        source_valid: Bool[Array, "B S"] | None = None,
        dropout_rate: Num[Array, ""] | float | None = None,
        attention_dropout_rate: Num[Array, ""] | float | None = None,
    ) -> Float[Array, "B S D"]:
        """See the function `encode`."""
        source_valid = source != PAD_ID if source_valid is None else source_valid
        drop = make_dropout(lambda: self.make_rng("dropout"), dropout_rate, attention_dropout_rate)
        return self._sown("encoder", encode(self._params, source, source_valid=source_valid, **self._setting(drop)))

    def decode(
        self,
        target: Int[Array, "B T"],
        memory: Float[Array, "B S D"],
        *,
        source_valid: Bool[Array, "B S"],
        dropout_rate: Num[Array, ""] | float | None = None,
        attention_dropout_rate: Num[Array, ""] | float | None = None,
    ) -> Float[Array, "B T D"]:
        """See the function `decode`; `logits` goes on from there."""
        drop = make_dropout(lambda: self.make_rng("dropout"), dropout_rate, attention_dropout_rate)
        decoded = decode(self._params, target, memory, source_valid=source_valid, **self._setting(drop))
        return self._sown("decoder", decoded)

    def logits(self, features: Float[Array, "B T D"]) -> Float[Array, "B T V"]:
        """See `transformer_logits`. Apart from `features`, so that a loss may take the vocabulary in pieces."""
        return transformer_logits(self._params, features, config=self.config)

    def _setting(self, drop: Dropout | None) -> dict:
        asked = self.is_mutable_collection("intermediates")
        return {"config": self.config, "components": self._components, "drop": drop, "return_attention_weights": asked}

    def _sown(self, side: str, result: tuple[Array, Weights | None]) -> Array:
        x, weights = result
        for name, value in (weights or {}).items():
            self.sow("intermediates", f"{side}_{name}", value)
        return x
