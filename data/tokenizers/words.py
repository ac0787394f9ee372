"""A tokenizer of text that spaces split into tokens: words, phonemes, or pieces marked with `@@`."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from data.tokenizers.base import NUM_SPECIAL, REPLACEMENT, UNK, Normalization, Tokenizer, normalize, without_surrogates

_WORD = re.compile(r"[^ \t\n\r\f\v]+")
_JOINT = re.compile(r"@@( |\Z)")


class WordTokenizer(Tokenizer):
    """One id for each word between spaces (or other ASCII white space; a no-break space is part of a word).

    `decode(encode(text))` is the normalised text with single spaces between its words, none around them, and `@@ `, the
    mark of subword-nmt for a word that goes on, taken out: `kür@@ zer  als` gives `kürzer als`. Whenever all words are
    known. A lone surrogate, which no UTF-8 file can hold, becomes U+FFFD.
    """

    kind = "pretokenized"

    def __init__(self, words: Iterable[str], normalization: Normalization = "none") -> None:
        """`words` in the order of their ids. Raises ValueError unless they are distinct, and words."""
        super().__init__(normalization)
        self.words = tuple(words)
        if any(not isinstance(word, str) or not _WORD.fullmatch(word) for word in self.words):
            raise ValueError("a vocabulary consists of words without white space")
        self._id_of = {word: number for number, word in enumerate(self.words, start=NUM_SPECIAL)}
        if len(self._id_of) != len(self.words):
            raise ValueError("a vocabulary names each word once")

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int = 0, normalization: Normalization = "none") -> "WordTokenizer":
        """Train a tokenizer that knows the words of `texts`, the most frequent first, in all at most `vocab_size` ids.

        0: all of them. Words of equal frequency come in the order of their code points.
        """
        if vocab_size and vocab_size <= NUM_SPECIAL:
            raise ValueError(f"vocab_size must be more than {NUM_SPECIAL}, not {vocab_size}")
        empty = cls((), normalization)
        counts = Counter(chain.from_iterable(map(empty._split, texts)))
        words = sorted(counts, key=lambda word: (-counts[word], word))
        return cls(words[: vocab_size - NUM_SPECIAL] if vocab_size else words, normalization)

    @property
    def vocab_size(self) -> int:
        return NUM_SPECIAL + len(self.words)

    def encode_batch(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        split = list(map(self._split, texts))
        lengths = np.fromiter(map(len, split), np.int64, len(split))
        ids = np.fromiter((self._id_of.get(word, UNK) for words in split for word in words), np.int32, lengths.sum())
        return ids, lengths

    def _decode(self, ids: np.ndarray) -> str:
        return _join(REPLACEMENT if number == UNK else self.words[number - NUM_SPECIAL] for number in ids.tolist())

    def canonical(self, text: str) -> str:
        """Return the normalised text, single spaces between its words, `@@ ` taken out."""
        return _join(self._split(text))

    def _split(self, text: str) -> list[str]:
        return _WORD.findall(without_surrogates(normalize(text, self.normalization)))

    def _record(self) -> dict[str, Any]:
        return {"words": self.words}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "WordTokenizer":
        if not isinstance(record.get("words"), list):
            raise ValueError("no list of words")
        return cls(record["words"], record.get("normalization", "none"))


def _join(words: Iterable[str]) -> str:
    return _JOINT.sub("", " ".join(words))
