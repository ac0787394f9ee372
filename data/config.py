"""The part of an experiment that says which data it learns from, and in which shape."""

from dataclasses import dataclass
from typing import Literal, get_args, get_type_hints


@dataclass(frozen=True)
class DataConfig:
    source: str
    """Dataset: dates, stdlib or reverse. Several with weights, A=0.7,B=0.3, are mixed: these are shares of batches."""
    batch_size: int = 0
    """Examples per batch (text: rows), over all devices together. Not used if tokens_per_batch is given."""
    tokens_per_batch: int = 0
    """Instead of batch_size: rows times the wider of source and target, padding counted, that a batch may have."""
    row_multiple: int = 8
    """With tokens_per_batch, rows are a multiple of this, and at least as many; the devices must divide it."""
    max_source_length: int = 0
    """Tokens of the longest source, end of sentence counted; 0: the longest of the training split."""
    max_target_length: int = 0
    """Tokens of the longest target, end of sentence counted (text: of a row); 0: as for the source."""
    buckets: int = 1
    """Shapes, 1 to 6, that pairs of like length are padded to; each is a program to compile."""
    packing: Literal["chunks", "documents"] = "chunks"
    """Text: rows cut from one long stream, or whole documents packed into rows, where none sees another."""
    directory: str = ""
    """Where prepared datasets are kept; empty: $TFDS_DATA_DIR, or else ~/tensorflow_datasets."""

    def __post_init__(self) -> None:
        for name, least in (
            ("tokens_per_batch", 0),
            ("batch_size", 0 if self.tokens_per_batch else 1),
            ("row_multiple", 1),
            ("max_source_length", 0),
            ("max_target_length", 0),
            ("buckets", 1),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} must be an integer, not {value!r}")
            if value < least:
                raise ValueError(f"{name} must be at least {least}, not {value}")
        if self.buckets > 6:
            raise ValueError(f"buckets must be at most 6, not {self.buckets}")
        kinds = get_args(get_type_hints(DataConfig)["packing"])
        if self.packing not in kinds:
            raise ValueError(f"packing must be one of {', '.join(map(repr, kinds))}, not {self.packing!r}")
