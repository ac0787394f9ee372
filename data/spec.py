"""Data-dependent sizes of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from data.loading import PairData, TextData


@dataclass(frozen=True)
class DataSpec:
    """Vocabulary sizes and maximal lengths: what using a trained model needs of its training data."""

    vocab_sizes: dict[str, int]
    """Of each side, source and target or text."""
    input_shapes: dict[str, tuple[int, ...]]
    """The model's inputs in the largest batch."""
    source_widths: tuple[int, ...]
    """Widths, narrow to wide, that sources were padded to, EOS counted; longer ones are cut. Text: ()."""
    max_target_length: int
    """Tokens of the longest target, EOS counted (text: of a row)."""


def spec_of(data: PairData | TextData) -> DataSpec:
    """Return the sizes of a model that is trained on `data`."""
    largest = max(data.blank_batches(), key=lambda batch: batch["labels"].size)
    pairs = "source" in data.tokenizers
    return DataSpec(
        vocab_sizes=data.vocab_sizes,
        input_shapes={name: x.shape for name, x in largest["inputs"].items()},
        source_widths=tuple(sorted({source for source, _ in data.widths})) if pairs else (),
        max_target_length=data.max_target_length if pairs else data.config.max_target_length,
    )
