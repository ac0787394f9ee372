"""Prefill: encode the source or read the prompt, and return a step function, its cache and each row's last token.

    greedy(*start_language_model(model, params, prompt, lengths, max_tokens=50), max_tokens=50, end_id=2, pad_id=0)

The prompt but for its last token is read into the cache at once; its last token is the first that the step is given, so
the logits that continue a row are always those after its own last token, however long its neighbours are.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Int

from decoding.decodable import check_decodable
from decoding.step import BoundedStep, DecodeInputs
from model.cache import Cache, empty_cache, reorder_cache
from model.components import default_components
from model.cpu_backend import moves_cache_by_blocks
from model.language_model import language_model_logits, language_model_with_cache
from model.masks import PAD_ID
from model.shapes import Array
from model.stack import split_layers
from model.transformer import precompute_cross_kv, transformer_logits, transformer_with_cache


def prefill_language_model(
    model: nn.Module,
    params: Any,
    prompt: Int[Array, "B T"],
    lengths: Int[Array, " B"] | None = None,
    *,
    max_tokens: int,
) -> DecodeInputs:
    """Read the prompt of each row into a cache, to decode its continuation.

    Args:
      model: a `LanguageModel`, or a `DecodableModel`.
      lengths: tokens in each row, at least 1; what follows them is padding. None: all T.
      max_tokens: capacity of the cache besides the prompt.

    Raises:
      ValueError: prompt and continuation are longer than the model's longest sequence; a model of one's own lacks what
        decoding needs.
    """
    check_decodable(model)
    if hasattr(model, "prefill"):
        return model.prefill(params, prompt, lengths=lengths, max_tokens=max_tokens)
    config, components = model.config, model.components or default_components(model.config)
    params = {**params, "layers": split_layers(params["layers"])}
    extend = partial(language_model_with_cache, params, config=config, components=components)
    logits = partial(language_model_logits, params, config=config)
    return _start(extend, logits, config, config.num_layers, prompt, lengths, max_tokens)


def prefill_transformer(
    model: nn.Module,
    params: Any,
    source: Int[Array, "B S"],
    prompt: Int[Array, "B T"],
    lengths: Int[Array, " B"] | None = None,
    *,
    max_tokens: int,
) -> DecodeInputs:
    """Encode each row of `source` and read the beginning of its target, `prompt` (BOS at least), into a cache.

    The source is read, and the decoder's keys and values for it are made, once. Args and errors as above.
    """
    check_decodable(model)
    if hasattr(model, "prefill"):
        return model.prefill(params, source, prompt, lengths=lengths, max_tokens=max_tokens)
    config, components = model.config, model.components or default_components(model.config)
    source_valid = source != PAD_ID
    memory = model.apply({"params": params}, source, source_valid=source_valid, method="encode")
    params = {**params, "decoder": split_layers(params["decoder"])}
    memory = precompute_cross_kv(params, memory, config=config, source_valid=source_valid)

    def extend(cache: Cache, tokens: Array, **options) -> tuple[Cache, Array]:
        return transformer_with_cache(
            params, cache, tokens, memory, config=config, components=components, source_valid=source_valid, **options
        )

    logits = partial(transformer_logits, params, config=config)
    return _start(extend, logits, config, config.num_decoder_layers, prompt, lengths, max_tokens)


def _start(
    extend, logits, config, num_layers: int, prompt: Array, lengths: Array | None, max_tokens: int
) -> DecodeInputs:
    prompt = jnp.asarray(prompt)
    rows, width = prompt.shape
    if max_tokens < 1 or width < 1 or width - 1 + max_tokens > config.max_length:
        raise ValueError(
            f"a prompt of {width} tokens and {max_tokens} more want a token each and positions for all but the last, "
            f"{width - 1 + max_tokens}; the model has max_length={config.max_length}"
        )
    cache = empty_cache(config, num_layers, rows, width - 1 + max_tokens)
    lengths = jnp.full(rows, width) if lengths is None else jnp.asarray(lengths)
    if width > 1:
        before_last = jnp.arange(width - 1)[None] < lengths[:, None] - 1
        cache, _ = extend(cache, prompt[:, :-1], valid=before_last)
    first = jnp.take_along_axis(prompt, jnp.maximum(lengths[:, None] - 1, 0), axis=1)[:, 0]
    first = jnp.where(lengths > 0, first, -1)  # an empty prompt has no next token: an id that is none makes NaN

    def step(cache: Cache, newest: Array) -> tuple[Cache, Array]:
        cache, features = extend(cache, newest[:, None])
        return cache, logits(features)[:, 0]

    def reordered(cache: Cache, parents: Array, same: Array) -> Cache:
        return reorder_cache(cache, parents, width + same)

    return DecodeInputs(BoundedStep(step, max_tokens, reordered if moves_cache_by_blocks() else None), cache, first)
