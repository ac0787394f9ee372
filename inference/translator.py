"""Translation with a trained encoder–decoder, for generate.py, evaluate.py and reports."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from data.pairs import source_batches
from data.sequences import Sequences, encode
from data.tokenizers.base import BOS, EOS, PAD
from decoding import beam_search, greedy, log_likelihood, prefill_transformer, row_keys, sample
from decoding.decodable import check_decodable
from inference.attention import pair_attention
from inference.generation_config import DecodingOptions

if TYPE_CHECKING:
    import flax.linen as nn

    from analysis.attention_maps import AttentionMap
    from data.loading import PairData
    from data.spec import DataSpec
    from inference.trained_model import TrainedModel


NOT_NUMBERS = "the model's outputs are not numbers (NaN or infinite); its parameters may be damaged, or too large"
"""What is said where decoding finds logits that are no distribution."""


class Hypothesis(NamedTuple):
    """A hypothesis of beam search, or the one output of greedy decoding or sampling, for one line."""

    text: str
    score: float
    """Beam search: ln p / ((5 + L) / 6)^α. Otherwise ln p, summed over its tokens; NaN if scores were not asked for.
    p is the probability among the tokens that may be written, `DecodingOptions.suppress_ids` not among them."""
    finished: bool
    """False: it was cut off, having no end after as many tokens as there may be."""
    tokens: np.ndarray
    """int32, its end not among them."""


def output_length(model: nn.Module, spec: DataSpec, options: DecodingOptions) -> int:
    """Return the maximal tokens of an output, EOS counted: `options.max_tokens`, or the longest training target's.

    Raises:
      ValueError: more than the model has positions for, or a model of one's own that cannot be decoded.
    """
    check_decodable(model)
    length, most = options.max_tokens or spec.max_target_length, model.max_length
    if length > most:
        raise ValueError(f"outputs of {length} tokens are longer than the model's {most} positions (model.max_length)")
    return length


class Translator:
    """Decoding of text in batches, compiled once for each width that training had.

    Args:
      trained: the model, its parameters, tokenizers and limits.
      options: greedy unless told otherwise.
      scores: whether hypotheses have scores where they cost an extra pass, which is without a beam.

    Raises:
      ValueError: as `output_length`.
    """

    def __init__(self, trained: TrainedModel, options: DecodingOptions | None = None, scores: bool = False) -> None:
        options = options or DecodingOptions()
        self._trained, self._spec, self._rows = trained, trained.spec, options.batch_size
        self._tokenizers = trained.tokenizers
        self.max_tokens = output_length(trained.model, trained.spec, options)
        self._key = jax.random.key(options.seed, impl="threefry2x32")
        # What does not change the program is left out, so that one is compiled for all.
        static = dataclasses.replace(options, seed=0, batch_size=1, max_tokens=self.max_tokens)
        self._decode = partial(_decode, trained.model, options=static, scores=scores)
        self._has_scores = scores or options.beam > 1

    @property
    def max_source_length(self) -> int:
        """Return the tokens of the longest source that is not cut, EOS counted."""
        return self._spec.source_widths[-1]

    def split(self, data: PairData, split: str) -> list[str]:
        """Decode the best output for every example of `split`, in the order of `data.examples(split)`."""
        return [best.text for best, *_ in self.split_hypotheses(data, split)]

    def split_hypotheses(
        self, data: PairData, split: str, progress: Callable[[int], None] | None = None
    ) -> list[list[Hypothesis]]:
        """Decode the n best outputs for every example of `split`; of a blank source one, which is blank."""
        data.num_examples(split)  # complains if there is no such split
        found = self.hypotheses(data.encoded[split]["source"], progress=progress)
        blank = [Hypothesis("", 0.0, True, np.zeros(0, np.int32))]
        sources = (example["source"] for example in data.examples(split))
        return [best if source.strip() else blank for best, source in zip(found, sources, strict=True)]

    def lines(self, lines: Sequence[str]) -> list[str]:
        """Decode the best output for each line, in order.

        Raises:
          ValueError: a line is longer than the model's longest source; names it.
        """
        sources = self.encode(lines)
        for number in np.flatnonzero(sources.lengths > self.max_source_length)[:1]:
            raise ValueError(
                f"line {number + 1} has {sources.lengths[number] - 1} tokens, "
                f"the model reads at most {self.max_source_length - 1}: {lines[number]!r}"
            )
        return [best.text for best, *_ in self.hypotheses(sources)]

    def encode(self, lines: Sequence[str]) -> Sequences:
        """Encode lines as ids; those longer than `max_source_length` are cut when they are decoded."""
        return encode(self._tokenizers["source"], lines, "input")

    def hypotheses(
        self, sources: Sequences, numbers: np.ndarray | None = None, progress: Callable[[int], None] | None = None
    ) -> list[list[Hypothesis]]:
        """Decode the n best outputs for each source, the best first; fewer where fewer different ones exist.

        Of a source without tokens it is the empty text, whatever the model would say: nothing in, nothing out.

        Args:
          numbers: int [N], those of the sources, which what is sampled depends on. None: from 0 on.
          progress: called with the number of sources that have been decoded, after each batch.

        Raises:
          ValueError: the model's outputs for a source are not numbers; names its line, which is its number from 1.
        """
        count = len(sources.lengths)
        numbers = np.arange(count) if numbers is None else numbers
        # A few lines are not made wait for a whole batch; powers of two, so that there are few programs.
        size = min(self._rows, 1 << max(count - 1, 0).bit_length())
        found: list[list[Hypothesis]] = [[]] * count
        done = 0
        for rows, source in source_batches(sources, self._spec.source_widths, size):
            keys = row_keys(self._key, jnp.asarray(np.where(rows < 0, 0, numbers[rows]), jnp.int32))
            *outputs, defined = jax.device_get(self._decode(self._trained.params, source, keys))
            for row in rows[~defined & (rows >= 0)]:
                if sources.lengths[row] > 1:
                    raise ValueError(f"line {numbers[row] + 1}: {NOT_NUMBERS}")
            for place in np.flatnonzero(rows >= 0):
                found[rows[place]] = self._texts(*(array[place] for array in outputs))
            done += int((rows >= 0).sum())
            if progress is not None:
                progress(done)
        for blank in np.flatnonzero(sources.lengths == 1):
            found[blank] = [Hypothesis("", 0.0, True, np.zeros(0, np.int32))]
        return found

    def attention(self, line: str, tokens: np.ndarray | None = None) -> dict[str, AttentionMap]:
        """Compute the weights of attention over `line` for the output `tokens`; None: its best output.

        By kind, as `inference.attention.pair_attention`, which says what is raised.
        """
        sources = self.encode([line])
        if tokens is None:
            tokens = self.hypotheses(sources)[0][0].tokens
        _, source = next(iter(source_batches(sources, self._spec.source_widths, 1)))
        return pair_attention(self._trained, source, tokens, self.max_tokens)

    def _texts(self, tokens: np.ndarray, scores: np.ndarray, finished: np.ndarray, valid: np.ndarray) -> list:
        found = []
        for row in np.flatnonzero(valid):
            ids = tokens[row][(tokens[row] != PAD) & (tokens[row] != EOS)]
            score = float(scores[row]) if self._has_scores else math.nan
            found.append(Hypothesis(self._tokenizers["target"].decode(ids), score, finished[row], ids))
        return found


@partial(jax.jit, static_argnames=("model", "options", "scores"))
def _decode(model, params, source, keys, *, options: DecodingOptions, scores: bool):
    """Decode a batch: tokens [B, n, N], scores, finished and exists [B, n] of each row's n best; and defined [B].

    Scores are 0 where they were not asked for.
    """
    first = jnp.full((source.shape[0], 1), BOS, source.dtype)
    start = prefill_transformer(model, params, source, first, max_tokens=options.max_tokens)
    suppress = {"suppress_ids": options.suppress_ids}
    ends = {"max_tokens": options.max_tokens, "end_id": EOS, "pad_id": PAD, **suppress}
    if options.beam > 1:
        penalty = options.length_penalty
        best = beam_search(*start, beam_size=options.beam, length_penalty=penalty, num_results=options.nbest, **ends)
        return best.tokens, best.scores, best.finished, best.valid, best.defined
    if options.sample:
        choice = {name: getattr(options, name) for name in ("temperature", "top_k", "top_p")}
        decoded = sample(*start, keys, **choice, **ends)
    else:
        decoded = greedy(*start, **ends)
    # Without scores 0 on the device, NaN only on the host: JAX_DEBUG_NANS takes any on the device for a fault.
    score, defined = jnp.zeros(source.shape[0]), decoded.defined
    if scores:
        likelihood = log_likelihood(model, params, source, decoded.tokens, first_id=BOS, **suppress)
        score, defined = likelihood.log_probability, defined & likelihood.defined
    valid = jnp.ones_like(decoded.finished)
    return *(each[:, None] for each in (decoded.tokens, score, decoded.finished, valid)), defined
