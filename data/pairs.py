"""Batches of sentence pairs, for an encoder–decoder."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from data.buckets import find_buckets
from data.dataset import Batch, Data
from data.plan import EvalPlan
from data.sequences import Sequences
from data.tokenizers.base import BOS, EOS, PAD


@dataclass(frozen=True)
class PairData(Data):
    """Pairs of a source and a target as batches.

    A pair with a side longer than its maximum is left out of training (half a sentence would teach a wrong answer), and
    cut in evaluation, where every pair counts: the source keeps its EOS, the target loses it. `load` counts both.
    """

    max_source_length: int
    max_target_length: int
    kept: tuple[np.ndarray, ...]
    """Row ids of each dataset's training pairs that fit."""

    def _num_rows(self, split: str) -> int:
        return len(self.encoded[split]["target"].lengths)

    def _train_rows(self) -> tuple[np.ndarray, ...]:
        return self.kept

    def _lengths(self, split: str, row_ids: np.ndarray) -> np.ndarray:
        return np.stack([self.encoded[split][side].lengths[row_ids] for side in ("source", "target")], axis=1)

    def _batch(self, split: str, row_ids: np.ndarray, bucket: int) -> Batch:
        source_width, target_width = self.widths[bucket]
        source = _cut(self.encoded[split]["source"], row_ids, source_width)
        labels = self.encoded[split]["target"].gather(row_ids, target_width)
        before = np.concatenate([np.full((len(row_ids), 1), BOS), labels[:, :-1]], axis=1)
        target = np.where(labels == PAD, PAD, before).astype(np.int32)
        return {"inputs": {"source": source, "target": target}, "labels": labels, "loss_mask": labels != PAD}


def source_batches(
    sources: Sequences, widths: Sequence[int], batch_size: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batch sentences to be decoded, each once: their numbers (int64 [B], -1: none) and ids (int32 [B, S]).

    They are padded to the narrowest of `widths`, narrow to wide, that holds them, and cut to the widest, where they
    keep their EOS.
    """
    buckets = find_buckets(sources.lengths[:, None], tuple((width,) for width in widths))
    for rows, bucket in EvalPlan(buckets, (batch_size,) * len(widths)):
        yield rows, _cut(sources, rows, widths[bucket])


def _cut(sources: Sequences, rows: np.ndarray, width: int) -> np.ndarray:
    ids = sources.gather(rows, width)
    ids[sources.longer(rows, width), -1] = EOS
    return ids
