"""The attention weights of a trained model for one text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import jax
import numpy as np

from analysis.attention_maps import AttentionMap
from data.tokenizers.base import BOS, EOS, PAD

if TYPE_CHECKING:
    from inference.trained_model import TrainedModel

BEGIN, END = "begin", "end"
"""How the tokens before the first and after the last are labelled."""


class NoAttentionError(ValueError):
    """A model of one's own that sows no attention weights."""


def pair_attention(
    trained: TrainedModel, source: np.ndarray, tokens: np.ndarray, max_tokens: int
) -> dict[str, AttentionMap]:
    """Compute the attention of an encoder–decoder that reads `source` and writes `tokens`.

    The kinds are "encoder_self_attention", "decoder_self_attention" and "decoder_cross_attention". A query of the
    decoder is labelled with the token that is written there, a key of its self-attention with the token read there.

    Args:
      source: int [1, S], EOS and then padding at its end.
      tokens: int [T], without BOS and EOS.
      max_tokens: of an output, EOS counted. The program is compiled for this length, whatever T is.

    Raises:
      NoAttentionError: a model of one's own that sows no "decoder_cross_attention".
    """
    target = np.full((1, max_tokens), PAD, np.int32)
    given = np.array([BOS, *tokens], np.int32)[:max_tokens]
    target[0, : len(given)] = given
    read = int((source != PAD).sum())
    sown = _sown(trained, "decoder_cross_attention", source, target)
    names = [*_symbols(trained, "source", source[0, : read - 1]), END]
    written = _symbols(trained, "target", tokens)
    queries = [*written, END][: len(given)]  # what was cut off has no end
    known = [BEGIN, *written][: len(given)]
    labels = {
        "encoder_self_attention": (names, names),
        "decoder_self_attention": (known, queries),
        "decoder_cross_attention": (names, queries),
    }
    return {
        kind: AttentionMap(np.asarray(sown[kind][0])[:, 0, :, : len(queries), : len(keys)], keys, queries)
        for kind, (keys, queries) in labels.items()
        if kind in sown
    }


def text_attention(trained: TrainedModel, text: str) -> dict[str, AttentionMap]:
    """Compute the "self_attention" of a language model that reads `text`, the beginning of a document.

    Raises:
      ValueError: the text has more tokens than the model reads.
      NoAttentionError: as `token_attention`.
    """
    tokens, most = trained.tokenizers["text"].encode(text), most_tokens(trained)
    if len(tokens) > most:
        raise ValueError(f"the text has {len(tokens)} tokens, the model reads at most {most}: {text[:60]!r}")
    return token_attention(trained, tokens)


def token_attention(trained: TrainedModel, tokens: Sequence[int]) -> dict[str, AttentionMap]:
    """Compute the "self_attention" of a language model that reads `tokens`, [T], at most `most_tokens`.

    Keys and queries are the tokens that are read, the beginning first.

    Raises:
      NoAttentionError: a model of one's own that sows no "self_attention".
    """
    sown = _sown(trained, "self_attention", np.array([[EOS, *tokens]], np.int32))
    weights = np.asarray(sown["self_attention"][0])
    names = [BEGIN, *_symbols(trained, "text", tokens)]
    return {"self_attention": AttentionMap(weights[:, 0], names, names)}


def most_tokens(trained: TrainedModel) -> int:
    """Return how many tokens of a text a language model reads after its beginning."""
    length = trained.spec.max_target_length
    return min(length, getattr(trained.model, "max_length", length)) - 1


def _symbols(trained: TrainedModel, side: str, tokens: np.ndarray) -> list[str]:
    return [trained.tokenizers[side].decode([token]) for token in tokens]


def _sown(trained: TrainedModel, wanted: str, *inputs: np.ndarray) -> dict[str, tuple[jax.Array]]:
    sown = _intermediates(trained.params, *inputs, model=trained.model)
    if wanted not in sown:
        raise NoAttentionError(f"{type(trained.model).__name__} has no attention to draw: it sows no {wanted}")
    return sown


@partial(jax.jit, static_argnames="model")
def _intermediates(params, *inputs, model):
    """{kind: (weights [L, 1, H, T, S],)}, and whatever else the model sows."""
    return model.apply({"params": params}, *inputs, mutable=["intermediates"])[1].get("intermediates", {})
