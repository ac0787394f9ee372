"""Batches of documents, for a language model: one long stream in chunks, or packed rows."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from data.dataset import Batch, Data
from data.packing import Packing
from data.tokenizers.base import EOS, PAD


@dataclass(frozen=True)
class TextData(Data):
    """Documents as batches: each ends in EOS, all in one stream per split.

    Labels are the stream itself, the inputs the tokens before them (before the first: EOS, since a document comes after
    one). So every token is predicted exactly once, whichever way the stream is laid out in rows of `max_target_length`
    tokens (`config.packing`):

    - chunks: it is cut into rows, and what lies before a document in its row is context. Only a split's last row is
      filled with PAD, without weight; in a mixture the last of each source.
    - documents: whole documents are packed into rows. `segments` numbers them in each row, from 1 on, and `positions`
      starts with 0 in each, so that they do not see each other; both are 0 at PAD. A document longer than a row is cut
      into pieces of a row's length. The later ones begin with the token before them as input and have no other context.
    """

    layout: Mapping[str, Packing]
    """Of each split."""
    train_sizes: tuple[int, ...]
    """Rows of the training split that each dataset has."""

    def _num_rows(self, split: str) -> int:
        return len(self.layout[split])

    def _train_rows(self) -> tuple[np.ndarray, ...]:
        return tuple(np.split(np.arange(len(self.layout["train"])), np.cumsum(self.train_sizes)[:-1]))

    def _lengths(self, split: str, row_ids: np.ndarray) -> np.ndarray:
        layout = self.layout[split]
        return np.add.reduceat(layout.length, layout.first[:-1])[row_ids][:, None]

    def _batch(self, split: str, row_ids: np.ndarray, bucket: int) -> Batch:
        stream = self.encoded[split]["text"].ids
        index, segments, positions = self.layout[split].places(row_ids)
        real = index >= 0
        labels = np.where(real, stream[index], PAD).astype(np.int32)
        before = np.where(index > 0, stream[np.maximum(index - 1, 0)], EOS)
        inputs = {"tokens": np.where(real, before, PAD).astype(np.int32)}
        if self.config.packing == "documents":
            inputs |= {"segments": segments.astype(np.int32), "positions": positions.astype(np.int32)}
        return {"inputs": inputs, "labels": labels, "loss_mask": real}
