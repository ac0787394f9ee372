"""The decoder-only language model: embeddings, L blocks under a causal mask, a last norm, logits of the next token.

A pure function of nested parameters, and a thin Flax shell that holds them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int, Num

from model.block import Weights, encoder_block, init_encoder_block
from model.cache import Cache
from model.components import BlockComponents, default_components
from model.config import LanguageModelConfig
from model.dropout import Dropout, make_dropout
from model.embedding import unembed
from model.initializers import init_embedding, init_linear
from model.linear import linear
from model.masks import causal_mask, combine_masks, padding_mask, segment_mask
from model.shapes import Array, Params
from model.stack import apply_layers, init_layers, stack_input, stack_output, stack_with_cache


def init_language_model(
    config: LanguageModelConfig, vocab_size: int, components: BlockComponents
) -> dict[str, Callable[[Array], Params]]:
    """Return an initialiser for each top-level parameter: key -> nested dict.

    "embedding", "layers" (every leaf with a leading axis L), and where the model has them "positions" (learned), "norm"
    (pre-norm) and "unembedding" (untied).
    """
    width = config.d_model
    inits = {
        "embedding": lambda key: {"table": init_embedding(key, vocab_size, width)},
        "positions": components.positions.init,
        "layers": partial(
            init_layers, partial(init_encoder_block, config=config, components=components), num_layers=config.num_layers
        ),
        "norm": components.norm.init if config.norm_position == "pre" else None,
        "unembedding": partial(init_linear, fan_in=width, fan_out=vocab_size, bias=False)
        if config.embeddings == "separate"
        else None,
    }
    return {name: init for name, init in inits.items() if init is not None}


def language_model_features(
    params: Params,
    tokens: Int[Array, "B T"],
    *,
    config: LanguageModelConfig,
    components: BlockComponents,
    valid: Bool[Array, "B T"] | None = None,
    segments: Int[Array, "B T"] | None = None,
    positions: Int[Array, "#B T"] | None = None,
    drop: Dropout | None = None,
    return_attention_weights: bool = False,
) -> tuple[Float[Array, "B T D"], Weights | None]:
    """Compute features (the final norm's output) at each of `tokens`; and attention weights [L, B, H, T, T] if asked.

    Args:
      valid: False at tokens that must not be attended to. Padding at the end of a row needs none: it is in the future.
      segments: documents packed into a row, which do not see each other; give `positions` that restart with them.
      positions: 0 … T−1 unless given.

    Raises:
      ValueError: more tokens than `config.max_length`.
    """
    mask = combine_masks(
        causal_mask(tokens.shape[1]),
        None if valid is None else padding_mask(valid),
        None if segments is None else segment_mask(segments, segments),
    )
    x, positions = stack_input(
        params["embedding"]["table"],
        params.get("positions"),
        tokens,
        positions,
        config=config,
        components=components,
        drop=None if drop is None else drop.at(0),
    )

    def block(layer: Params, x: Array, drop: Dropout | None) -> tuple[Array, Weights]:
        return encoder_block(layer, x, config=config, components=components, mask=mask, positions=positions, drop=drop)

    x, weights = apply_layers(
        block,
        params["layers"],
        x,
        drop=None if drop is None else drop.at(1),
        scan=config.scan_layers,
        remat=config.remat,
        return_attention_weights=return_attention_weights,
    )
    return stack_output(params.get("norm"), x, components), weights


def language_model_with_cache(
    params: Params,
    cache: Cache,
    tokens: Int[Array, "B T"],
    *,
    config: LanguageModelConfig,
    components: BlockComponents,
    valid: Bool[Array, "B T"] | None = None,
) -> tuple[Cache, Float[Array, "B T D"]]:
    """Compute the features at the next `tokens` of the sequences in `cache`, and the updated cache.

    Args:
      params: "layers" may have been through `split_layers`.
      cache: from `empty_cache`, or from here.
      valid: False at padding, which takes slots but no positions, and which no token sees. None: there is none.
    """
    cache, x = stack_with_cache(
        params["layers"],
        cache,
        params["embedding"]["table"],
        params.get("positions"),
        tokens,
        jnp.ones(tokens.shape, bool) if valid is None else valid,
        config=config,
        components=components,
    )
    return cache, stack_output(params.get("norm"), x, components)


def language_model_logits(
    params: Params, features: Float[Array, "B T D"], *, config: LanguageModelConfig
) -> Float[Array, "B T V"]:
    """Compute the logits of the next token after each position, by the input embedding itself if it is tied."""
    if config.embeddings == "separate":
        return linear(params["unembedding"], features, config.dtype)
    return unembed(params["embedding"]["table"], features, config.dtype)


class LanguageModel(nn.Module):
    """p(token t+1 | tokens 0 … t) as a Flax module.

    `init(rng, tokens)["params"]` gives the parameters and `apply({"params": params}, tokens)` the logits [B, T, V].
    With `mutable=["intermediates"]` the second result holds the attention weights of every layer and head,
    "self_attention" [L, B, H, T, T]; asking changes no number. For dropout hand in `dropout_rate` (a number or a
    traced array) and `rngs={"dropout": key}`; without, there is none.
    """

    config: LanguageModelConfig
    vocab_size: int
    components: BlockComponents | None = None
    """None: the standard parts, which the config names."""

    @property
    def max_length(self) -> int:
        """Return the tokens of the longest sequence."""
        return self.config.max_length

    def setup(self):
        self._components = self.components or default_components(self.config)
        inits = init_language_model(self.config, self.vocab_size, self._components)
        self._params = {name: self.param(name, init) for name, init in inits.items()}

    def __call__(self, tokens: Int[Array, "B T"], **options) -> Float[Array, "B T V"]:
        """Logits of the token after each of `tokens`; options as in `features`."""
        return self.logits(self.features(tokens, **options))

    def features(
        self,
        tokens: Int[Array, "B T"],
        *,
        valid: Bool[Array, "B T"] | None = None,
        segments: Int[Array, "B T"] | None = None,
        positions: Int[Array, "#B T"] | None = None,
        dropout_rate: Num[Array, ""] | float | None = None,
        attention_dropout_rate: Num[Array, ""] | float | None = None,
    ) -> Float[Array, "B T D"]:
        """See `language_model_features`."""
        drop = make_dropout(lambda: self.make_rng("dropout"), dropout_rate, attention_dropout_rate)
        x, weights = language_model_features(
            self._params,
            tokens,
            config=self.config,
            components=self._components,
            valid=valid,
            segments=segments,
            positions=positions,
            drop=drop,
            return_attention_weights=self.is_mutable_collection("intermediates"),
        )
        for name, value in (weights or {}).items():
            self.sow("intermediates", name, value)
        return x

    def logits(self, features: Float[Array, "B T D"]) -> Float[Array, "B T V"]:
        """See `language_model_logits`. Apart from `features`, so that a loss may take the vocabulary in pieces."""
        return language_model_logits(self._params, features, config=self.config)
