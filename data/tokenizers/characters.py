"""A tokenizer with one token for each character."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from data.tokenizers.base import NUM_SPECIAL, REPLACEMENT, UNK, Normalization, Tokenizer, normalize


class CharacterTokenizer(Tokenizer):
    """One id for each character (Unicode code point).

    `decode(encode(text))` is the normalised text, without normalisation the text itself, whenever all characters are
    known: newlines, NUL and lone surrogates too.
    """

    kind = "characters"

    def __init__(self, characters: Iterable[str], normalization: Normalization = "none") -> None:
        """`characters` in the order of their ids. Raises ValueError unless they are distinct and single."""
        super().__init__(normalization)
        self.characters = tuple(characters)
        if any(not isinstance(character, str) or len(character) != 1 for character in self.characters):
            raise ValueError("a vocabulary consists of single characters")
        if len(set(self.characters)) != len(self.characters):
            raise ValueError("a vocabulary names each character once")
        points = [ord(character) for character in self.characters]
        self._id_of = np.full(0x110000, UNK, np.int32)
        self._id_of[points] = np.arange(NUM_SPECIAL, self.vocab_size, dtype=np.int32)
        self._point_of = np.array([0, 0, 0, ord(REPLACEMENT), *points], np.uint32)

    @classmethod
    def train(cls, texts: Iterable[str], normalization: Normalization = "none") -> "CharacterTokenizer":
        """Train a tokenizer that knows the characters of `texts`, in the order of their code points."""
        return cls(sorted(set().union(*(normalize(text, normalization) for text in texts))), normalization)

    @property
    def vocab_size(self) -> int:
        return NUM_SPECIAL + len(self.characters)

    def encode_batch(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        texts = list(map(self.canonical, texts))  # each alone: marks do not combine over the seam of two texts
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        return self._id_of[_code_points("".join(texts))], lengths

    def _decode(self, ids: np.ndarray) -> str:
        return self._point_of[ids].astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")

    def _record(self) -> dict[str, Any]:
        # A list, escaped: two lone surrogates side by side in one JSON string would become a single character.
        return {"characters": self.characters}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "CharacterTokenizer":
        if not isinstance(record.get("characters"), list):
            raise ValueError("no list of characters")
        return cls(record["characters"], record.get("normalization", "none"))


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
