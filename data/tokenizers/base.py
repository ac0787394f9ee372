"""The base class of tokenizers: text to token ids and back."""

import json
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

PAD = 0
"""Fills a row behind its end. Never inside a sentence."""
BOS = 1
"""Beginning of sentence: the decoder's first input."""
EOS = 2
"""End of sentence: the last label. Not PAD, so that a model learns where to stop."""
UNK = 3
"""Id of every token that the training split lacks."""
NUM_SPECIAL = 4

REPLACEMENT = "\ufffd"
"""What UNK is decoded to, and bytes that are no text."""

Normalization = Literal["none", "NFC", "NFD"]

_SURROGATES = re.compile("[\ud800-\udfff]")


class Tokenizer(ABC):
    """Text <-> ids. Ids below 4 are PAD, BOS, EOS and UNK, and have no spelling: `</s>` in a text is ordinary text.

    The promise of each tokenizer: `decode(encode(text)) == canonical(text)` wherever no token of the text is unknown.
    Then the ids come back too, `encode(decode(ids)) == ids`: of characters, bytes, and bpe trained here; of
    pretokenized unless `@@` joins words; of a `tokenizer.json` as far as its own normaliser and decoder let them.

    Nothing is promised of ids that no text was encoded to, which a model may write, nor where one of them is UNK. Text
    can be spelt in other pieces than `encode` takes, and U+FFFD, which is UNK in a text, is encoded like any
    other character: to UNK only where the vocabulary lacks it.
    """

    kind: ClassVar[str]
    """Its name in a config and in its file."""

    def __init__(self, normalization: Normalization = "none") -> None:
        """`normalization`: the Unicode form that texts are brought into first. NFD makes Hangul a sequence of jamo."""
        if normalization not in ("none", "NFC", "NFD"):
            raise ValueError(f"normalization must be 'none', 'NFC' or 'NFD', not {normalization!r}")
        self.normalization = normalization

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Return the number of ids, the special ones counted."""

    @abstractmethod
    def encode_batch(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Encode `texts`: the ids of all, end to end (int32), and the length of each (int64).

        No special tokens are added; an unknown token is UNK.
        """

    def encode(self, text: str) -> np.ndarray:
        """Encode `text` as int32 ids, no special tokens added; an unknown token is UNK."""
        return self.encode_batch([text])[0]

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Decode `ids` to text: PAD, BOS and EOS are dropped, UNK becomes U+FFFD.

        Raises ValueError for an id outside the vocabulary.
        """
        ids = np.asarray(ids)
        if ids.size == 0:
            return ""
        if not np.issubdtype(ids.dtype, np.integer):
            raise TypeError(f"ids must be integers, not {ids.dtype}")
        outside = (ids < 0) | (ids >= self.vocab_size)
        if outside.any():
            raise ValueError(f"id {ids[outside][0]} is outside the vocabulary of {self.vocab_size}")
        return self._decode(ids[ids >= UNK])

    @abstractmethod
    def _decode(self, ids: np.ndarray) -> str:
        """Decode ids that are all UNK or ordinary."""

    def canonical(self, text: str) -> str:
        """Return what `decode` can give back of `text`, to compare outputs with. Here: its normalised form."""
        return normalize(text, self.normalization)

    @abstractmethod
    def _record(self) -> dict[str, Any]:
        """Return what JSON is to hold besides kind and normalisation."""

    @classmethod
    @abstractmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Tokenizer":
        """Make the tokenizer that `record`, read from a file, describes. Raises ValueError where it does not."""

    def save(self, path: str | Path) -> None:
        """Write it as JSON; `data.tokenizers.factory.load_tokenizer` reads it."""
        record = {"type": self.kind, "normalization": self.normalization} | self._record()
        Path(path).write_text(json.dumps(record) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Read what `save` wrote. Raises ValueError for a file that is something else, or damaged."""
        try:
            return cls.from_record(read_record(path, cls.kind))
        except ValueError as error:  # json's and Unicode's errors are ValueErrors too
            raise ValueError(f"{path} is not a {cls.kind.removesuffix('s')} tokenizer: {error}") from None


def normalize(text: str, form: Normalization) -> str:
    """Normalize `text` to this Unicode form."""
    return text if form == "none" else unicodedata.normalize(form, text)


def without_surrogates(text: str) -> str:
    """Replace every lone surrogate by U+FFFD: it is no character, and cannot be written as UTF-8."""
    return _SURROGATES.sub(REPLACEMENT, text)


def read_record(path: str | Path, *kinds: str) -> dict[str, Any]:
    """Read the JSON object in a tokenizer's file. Raises ValueError if it is none, or of none of these kinds."""
    record = json.loads(Path(path).read_bytes())
    if not isinstance(record, dict) or record.get("type") not in kinds:
        raise ValueError(f'no {{"type": "{" or ".join(kinds)}"}}')
    return record
