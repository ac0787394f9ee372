"""Sentences and what they are to be turned into: for an encoder–decoder."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from data.buckets import find_buckets, rows_per_bucket
from data.dataset import Batch, Data
from data.plan import EvalPlan
from data.sequences import Sequences
from data.tokenizers.base import BOS, EOS, PAD


@dataclass(frozen=True)
class PairData(Data):
    """Pairs of a source and a target.

    A pair with a side longer than its maximum is left out of training (half a sentence would teach a wrong answer), and
    cut in evaluation, where every pair counts: the source keeps its EOS, the target loses it. `load` counts both.
    """

    max_source_length: int
    max_target_length: int
    kept: tuple[np.ndarray, ...]
    """The training pairs of each source that fit, by number."""
    widths: tuple[tuple[int, int], ...]
    """What sources and targets are padded to, narrow to wide; the last are the maximal lengths."""

    def source_batches(self, sources: Sequences, batch_size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Sentences to be decoded, each once: their numbers (int64 [B], -1: none) and ids (int32 [B, S]).

        They are padded to the narrowest source width that holds them, and cut to the widest, where they keep their EOS.
        """
        return source_batches(sources, sorted({source for source, _ in self.widths}), batch_size)

    def _widths(self) -> tuple[tuple[int, int], ...]:
        return self.widths

    def _rows_per_bucket(self) -> tuple[int, ...]:
        config = self.config
        return rows_per_bucket(self.widths, config.batch_size, config.tokens_per_batch, config.row_multiple)

    def _rows(self, split: str) -> Sequence:
        return self.encoded["target"][split].lengths

    def _train_rows(self) -> tuple[np.ndarray, ...]:
        return self.kept

    def _lengths(self, split: str, rows: np.ndarray) -> np.ndarray:
        return np.stack([self.encoded[side][split].lengths[rows] for side in ("source", "target")], axis=1)

    def _buckets(self, split: str, rows: np.ndarray) -> np.ndarray:
        return find_buckets(self._lengths(split, rows), self.widths)

    def _batch(self, split: str, rows: np.ndarray, bucket: int) -> Batch:
        source_width, target_width = self.widths[bucket]
        source = _cut(self.encoded["source"][split], rows, source_width)
        labels = self.encoded["target"][split].rows(rows, target_width)
        before = np.concatenate([np.full((len(rows), 1), BOS), labels[:, :-1]], axis=1)
        target = np.where(labels == PAD, PAD, before).astype(np.int32)
        return {"inputs": {"source": source, "target": target}, "labels": labels, "weights": labels != PAD}


def source_batches(
    sources: Sequences, widths: Sequence[int], batch_size: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """As the method of the same name, for these `widths`, narrow to wide: without any data to train on."""
    buckets = find_buckets(sources.lengths[:, None], tuple((width,) for width in widths))
    for rows, bucket in EvalPlan(buckets, (batch_size,) * len(widths)):
        yield rows, _cut(sources, rows, widths[bucket])


def _cut(sources: Sequences, rows: np.ndarray, width: int) -> np.ndarray:
    ids = sources.rows(rows, width)
    ids[sources.longer(rows, width), -1] = EOS
    return ids
