"""Making of tokenizers: trained on the training split, read from a file, or restored with a run."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

from data.config import DataConfig
from data.tokenizers.base import Tokenizer, read_record
from data.tokenizers.bpe import SubwordTokenizer
from data.tokenizers.bytes import ByteTokenizer
from data.tokenizers.characters import CharacterTokenizer
from data.tokenizers.words import WordTokenizer

CLASSES: dict[str, type[Tokenizer]] = {
    tokenizer.kind: tokenizer for tokenizer in (CharacterTokenizer, ByteTokenizer, SubwordTokenizer, WordTokenizer)
}
DEFAULT_BPE_SIZE = 8_000
"""Ids of a bpe vocabulary where none is asked for."""


def make_tokenizers(config: DataConfig, texts: Mapping[str, Sequence[str]]) -> dict[str, Tokenizer]:
    """Make a tokenizer for each side (source and target, or text), from the texts of its training split.

    One and the same for both sides with `shared_vocabulary` or `tokenizer_file`. Raises ValueError, one line, for a
    vocabulary too small, and for a file that is no tokenizer.
    """
    if config.tokenizer_file:
        return dict.fromkeys(texts, SubwordTokenizer.from_file(config.tokenizer_file, config.normalization))
    if config.shared_vocabulary:
        return dict.fromkeys(texts, _train(config.tokenizer, config, chain.from_iterable(texts.values())))
    target = config.tokenizer if config.target_tokenizer == "same" else config.target_tokenizer
    return {
        side: _train(target if side == "target" else config.tokenizer, config, of_side)
        for side, of_side in texts.items()
    }


def _train(kind: str, config: DataConfig, texts: Iterable[str]) -> Tokenizer:
    if kind == "bytes":
        return ByteTokenizer(config.normalization)
    if kind == "bpe":
        return SubwordTokenizer.train(texts, config.vocab_size or DEFAULT_BPE_SIZE, config.normalization)
    if kind == "pretokenized":
        return WordTokenizer.train(texts, config.vocab_size, config.normalization)
    return CharacterTokenizer.train(texts, config.normalization)


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Read what any tokenizer's `save` wrote. Raises ValueError for a file that is something else, or damaged."""
    try:
        record = read_record(path, *CLASSES)
        return CLASSES[record["type"]].from_record(record)
    except ValueError as error:
        raise ValueError(f"{path} is not a tokenizer: {error}") from None
