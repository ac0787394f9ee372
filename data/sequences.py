"""Token sequences of a split: all its sentences end to end in one array, from which batches are cut."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from data.tokenizers.base import EOS, PAD, UNK, Tokenizer


@dataclass(frozen=True)
class Sequences:
    """N sentences, EOS at the end of each."""

    ids: np.ndarray
    """[sum of lengths], of the smallest unsigned type that holds the vocabulary."""
    offsets: np.ndarray
    """int64 [N + 1]: sentence n is ids[offsets[n] : offsets[n + 1]]."""
    num_unknown: int
    """Tokens that are UNK."""

    @classmethod
    def joined(cls, parts: "Sequence[Sequences]") -> "Sequences":
        """Concatenate the sentences of all `parts`."""
        if len(parts) == 1:
            return parts[0]
        offsets = np.concatenate([[0], np.cumsum(np.concatenate([part.lengths for part in parts]))])
        return cls(np.concatenate([part.ids for part in parts]), offsets, sum(part.num_unknown for part in parts))

    @property
    def lengths(self) -> np.ndarray:
        """Return the lengths, EOS counted: int64 [N]."""
        return np.diff(self.offsets)

    def gather(self, row_ids: np.ndarray, width: int) -> np.ndarray:
        """Return the sentences, cut to `width` and filled with PAD: int32 [len(row_ids), width]. Id -1 is all PAD."""
        begin = np.where(row_ids < 0, 0, self.offsets[row_ids])
        end = np.where(row_ids < 0, 0, self.offsets[row_ids + 1])
        return self.spans(begin, np.minimum(end, begin + width), width)

    def longer(self, row_ids: np.ndarray, width: int) -> np.ndarray:
        """Return whether `gather` cuts each sentence: bool [len(row_ids)]."""
        return (row_ids >= 0) & (self.offsets[row_ids + 1] - self.offsets[row_ids] > width)

    def spans(self, begin: np.ndarray, end: np.ndarray, width: int) -> np.ndarray:
        """Gather ids[begin:end] of each span (no longer than `width`), padded: int32 [len(begin), width]."""
        positions = begin[:, None] + np.arange(width)
        inside = positions < end[:, None]
        return np.where(inside, self.ids[np.where(inside, positions, 0)], PAD).astype(np.int32)


def encode(tokenizer: Tokenizer, texts: Sequence[str], name: str) -> Sequences:
    """Encode `texts` as ids, EOS added.

    A model takes any integer for an id and answers NaN or another token's row for one that it does not have; and PAD
    inside a sentence would be masked. So both are refused here, before training: ValueError with the number of the
    example in `name`, and the id.
    """
    ids, lengths = tokenizer.encode_batch(texts)
    if not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(f"{name}: ids must be integers, not {ids.dtype}")
    ends = np.cumsum(lengths)
    for wrong, why in (
        ((ids < 0) | (ids >= tokenizer.vocab_size), f"outside the vocabulary of {tokenizer.vocab_size}"),
        ((ids >= 0) & (ids < UNK), "reserved for padding, begin and end of sentence"),
    ):
        if wrong.any():
            at = int(np.argmax(wrong))
            example = int(np.searchsorted(ends, at, side="right"))
            raise ValueError(f"{name}: example {example} has id {ids[at]}, which is {why}")
    unknown = int(np.count_nonzero(ids == UNK))
    small = np.min_scalar_type(max(tokenizer.vocab_size - 1, EOS))
    offsets = np.concatenate([[0], ends + np.arange(1, len(ends) + 1)]).astype(np.int64)
    return Sequences(np.insert(ids.astype(small), ends, EOS), offsets, unknown)
