"""Text in, text out, with a trained encoder–decoder: what the reports of such experiments share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from data.tokenizer import BOS, EOS, PAD
from decoding.transformer_step import greedy_transformer

if TYPE_CHECKING:
    from experiments.experiment import Trained


class CrossAttention(NamedTuple):
    """Which source characters each target character was written from."""

    weights: np.ndarray
    """[L, H, T, S]: row t is where the decoder looked when it wrote target token t."""
    source: list[str]
    target: list[str]


def translate_split(trained: Trained, split: str) -> list[str]:
    """The greedy output for every example of `split`, in the order of `trained.data.examples(split)`."""
    rows = trained.data.num_examples(split)
    sources = (batch["inputs"]["source"] for batch in trained.data.eval_batches(split, 256))
    return [text for batch in _decode(trained, sources) for text in batch][:rows]


def translate(trained: Trained, lines: Sequence[str]) -> list[str]:
    """The greedy output for each line, same order and number.

    Raises:
      ValueError: a line is longer than the model's longest source; names it.
    """
    return [text for batch in _decode(trained, [_encode(trained, lines)]) for text in batch]


def cross_attention(trained: Trained, line: str) -> CrossAttention:
    """The weights of the decoder's attention over `line` while it writes its greedy output."""
    source = _encode(trained, [line])
    written = list(trained.data.tokenizers["target"].encode(translate(trained, [line])[0]))
    target = np.array([[BOS, *written]], np.int32)
    _, sown = trained.model.apply(
        {"params": trained.params}, jnp.asarray(source), jnp.asarray(target), mutable=["intermediates"]
    )
    weights = sown["intermediates"]["decoder_cross_attention"][0]  # [L, 1, H, T, S]
    length = int((source != PAD).sum())
    return CrossAttention(
        np.asarray(weights[:, 0, :, :, :length]),
        [*_symbols(trained, "source", source[0, : length - 1]), "end"],
        [*_symbols(trained, "target", np.array(written)), "end"],
    )


def _decode(trained: Trained, sources: Sequence[np.ndarray] | Iterator[np.ndarray]) -> Iterator[list[str]]:
    max_tokens, tokenizer = trained.data.max_target_length, trained.data.tokenizers["target"]

    @jax.jit
    def decode(params, source):
        return greedy_transformer(trained.model, params, source, max_tokens=max_tokens, first_id=BOS, end_id=EOS).tokens

    for source in sources:
        yield [tokenizer.decode(row) for row in np.asarray(decode(trained.params, source))]


def _encode(trained: Trained, lines: Sequence[str]) -> np.ndarray:
    longest = trained.data.max_source_length
    source = np.full((len(lines), longest), PAD, np.int32)
    for row, line in enumerate(lines):
        ids = trained.data.tokenizers["source"].encode(line)
        if len(ids) + 1 > longest:
            raise ValueError(f"line {row + 1} has {len(ids)} characters, the model reads up to {longest - 1}: {line!r}")
        source[row, : len(ids) + 1] = [*ids, EOS]
    return source


def _symbols(trained: Trained, side: str, ids: np.ndarray) -> list[str]:
    return [trained.data.tokenizers[side].decode([token]) for token in ids]
