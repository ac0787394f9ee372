"""Text in, text out, with a trained encoder–decoder: what the reports of such experiments share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from data.sequences import Sequences, encode
from data.tokenizer import BOS, EOS, PAD
from decoding import greedy, start_transformer

if TYPE_CHECKING:
    from experiments.experiment import Trained

ROWS = 256
"""Sentences that are decoded together, padding rows among them, so that there is one program for each width."""


class CrossAttention(NamedTuple):
    """Which source characters each target character was written from."""

    weights: np.ndarray
    """[L, H, T, S]: row t is where the decoder looked when it wrote target token t."""
    source: list[str]
    target: list[str]


class Translator:
    """Greedy decoding of text, compiled once for each width that training had."""

    def __init__(self, trained: Trained):
        self._trained, self._data = trained, trained.data
        max_tokens, model = trained.data.max_target_length, trained.model

        def decode(params, source):
            first = jnp.full((source.shape[0], 1), BOS, source.dtype)
            start = start_transformer(model, params, source, first, max_tokens=max_tokens)
            return greedy(*start, max_tokens=max_tokens, end_id=EOS, pad_id=PAD).tokens

        self._decode = jax.jit(decode)

    def split(self, split: str) -> list[str]:
        """The output for every example of `split`, in the order of `data.examples(split)`."""
        self._data.num_examples(split)  # complains if there is no such split
        return self._texts(self._data.encoded["source"][split])

    def lines(self, lines: Sequence[str]) -> list[str]:
        """The output for each line, same order and number.

        Raises:
          ValueError: a line is longer than the model's longest source; names it.
        """
        return self._texts(self._encode(lines))

    def attention(self, line: str) -> CrossAttention:
        """The weights of the decoder's attention over `line` while it writes its output."""
        source = self._encode([line])
        written = [int(token) for token in self._tokens(source)[0] if token not in (PAD, EOS)]
        _, sown = self._trained.model.apply(
            {"params": self._trained.params},
            jnp.asarray(source.ids[None], jnp.int32),
            jnp.array([[BOS, *written]]),
            mutable=["intermediates"],
        )
        weights = np.asarray(sown["intermediates"]["decoder_cross_attention"][0])  # [L, 1, H, T, S]
        sides = (("source", source.ids[:-1]), ("target", written))
        symbols = [[*(self._data.tokenizers[side].decode([token]) for token in ids), "end"] for side, ids in sides]
        return CrossAttention(weights[:, 0], *symbols)

    def _texts(self, sources: Sequences) -> list[str]:
        return [self._data.tokenizers["target"].decode(row) for row in self._tokens(sources)]

    def _tokens(self, sources: Sequences) -> np.ndarray:
        """Target ids [N, T] of N sentences. Short ones are decoded in narrow batches."""
        outputs = np.full((len(sources.lengths), self._data.max_target_length), PAD, np.int32)
        for rows, batch in self._data.source_batches(sources, ROWS):
            real = rows >= 0
            outputs[rows[real]] = np.asarray(self._decode(self._trained.params, batch))[real]
        return outputs

    def _encode(self, lines: Sequence[str]) -> Sequences:
        sources, longest = encode(self._data.tokenizers["source"], lines, "input"), self._data.max_source_length
        for number in np.flatnonzero(sources.lengths > longest)[:1]:
            raise ValueError(
                f"line {number + 1} has {sources.lengths[number] - 1} characters, "
                f"the model reads at most {longest - 1}: {lines[number]!r}"
            )
        return sources
