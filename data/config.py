"""The part of an experiment that says which data it learns from, and in which shape."""

from dataclasses import dataclass
from typing import Literal, get_args, get_type_hints


@dataclass(frozen=True)
class DataConfig:
    source: str
    """Dataset: dates, stdlib, reverse, tfds:NAME[/CONFIG], text:PATH, tsv:PATH or parallel:PREFIX."""
    batch_size: int
    """Examples per batch (text: chunks), over all devices together."""
    max_source_length: int = 0
    """Tokens of the longest source, end of sentence counted; 0: the longest of the training split."""
    max_target_length: int = 0
    """Tokens of the longest target, end of sentence counted (text: of a chunk); 0: as for the source."""
    buckets: int = 1
    """Widths that sources of like length are padded to in training, 1 to 6; each is a program to compile."""
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
            ("batch_size", 1),
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
        for name in ("tokenizer", "target_tokenizer", "normalization"):
            choices = get_args(types[name])
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, not {getattr(self, name)!r}")
        for name in ("shared_vocabulary", "tokenizer_file"):
            if getattr(self, name) and self.target_tokenizer not in ("same", self.tokenizer):
                raise ValueError(f"{name} wants one tokenizer for both sides, but target_tokenizer is given")
