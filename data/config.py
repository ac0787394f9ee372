"""Data options of an experiment: the source, the tokenizers, and the lengths of batches."""

from dataclasses import dataclass
from typing import Literal, get_args, get_type_hints


@dataclass(frozen=True)
class DataConfig:
    source: str
    """dates, stdlib, reverse, tfds:NAME[/CONFIG], text:PATH, tsv:PATH or parallel:PREFIX; A=0.7,B=0.3 mixes them."""
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
    tokenizer: Literal["characters", "bytes", "bpe", "pretokenized"] = "characters"
    """What a token is; pretokenized: what stands between spaces."""
    target_tokenizer: Literal["same", "characters", "bytes", "bpe", "pretokenized"] = "same"
    """What a token of the target is, where it is something else than for the source."""
    normalization: Literal["none", "NFC", "NFD"] = "none"
    """Unicode form that text is brought into before it is split into tokens; NFD makes Hangul a sequence of jamo."""
    vocab_size: int = 0
    """Ids of bpe, at most of pretokenized, special ones counted; 0: 8,000 for bpe, every word for pretokenized."""
    shared_vocabulary: bool = False
    """One vocabulary for source and target, made from both."""
    tokenizer_file: str = ""
    """A tokenizer.json of Hugging Face's to use for every side, instead of training one."""
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
            ("vocab_size", 0),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} must be an integer, not {value!r}")
            if value < least:
                raise ValueError(f"{name} must be at least {least}, not {value}")
        if self.buckets > 6:
            raise ValueError(f"buckets must be at most 6, not {self.buckets}")
        types = get_type_hints(DataConfig)
        for name in ("packing", "tokenizer", "target_tokenizer", "normalization"):
            choices = get_args(types[name])
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, not {getattr(self, name)!r}")
        for name in ("shared_vocabulary", "tokenizer_file"):
            if getattr(self, name) and self.target_tokenizer not in ("same", self.tokenizer):
                raise ValueError(f"{name} wants one tokenizer for both sides, but target_tokenizer is given")
