"""The part of an experiment that says which data it learns from, and in which shape."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DataConfig:
    source: str
    """Dataset: dates, stdlib or reverse."""
    batch_size: int
    """Examples per batch (text: chunks), over all devices together."""
    max_source_length: int = 0
    """Tokens of the longest source, end of sentence counted; 0: the longest of the training split."""
    max_target_length: int = 0
    """Tokens of the longest target, end of sentence counted (text: of a chunk); 0: as for the source."""
    buckets: int = 1
    """Widths that sources of like length are padded to in training, 1 to 6; each is a program to compile."""
    directory: str = ""
    """Where prepared datasets are kept; empty: $TFDS_DATA_DIR, or else ~/tensorflow_datasets."""

    def __post_init__(self) -> None:
        for name, least in (("batch_size", 1), ("max_source_length", 0), ("max_target_length", 0), ("buckets", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} must be an integer, not {value!r}")
            if value < least:
                raise ValueError(f"{name} must be at least {least}, not {value}")
        if self.buckets > 6:
            raise ValueError(f"buckets must be at most 6, not {self.buckets}")
