"""From text to token ids and back, one token for every character."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

PAD = 0
"""Fills a row behind its end. Never inside a sentence."""
BOS = 1
"""Beginning of sentence: the decoder's first input."""
EOS = 2
"""End of sentence: the last label. Not PAD, so that a model learns where to stop."""
UNK = 3
"""Stands for a character that the training split lacks."""
NUM_SPECIAL = 4

_REPLACEMENT = "\ufffd"


class CharacterTokenizer:
    """One id for each character (Unicode code point); ids below 4 are PAD, BOS, EOS and UNK.

    Text is taken as it is, without normalisation: `decode(encode(text)) == text` whenever all its characters are
    known. Special tokens have no spelling, so `</s>` in a text is four ordinary characters.
    """

    def __init__(self, characters: Iterable[str]) -> None:
        """`characters` in the order of their ids. Raises ValueError unless they are distinct and single."""
        self.characters = tuple(characters)
        if any(not isinstance(character, str) or len(character) != 1 for character in self.characters):
            raise ValueError("a vocabulary consists of single characters")
        if len(set(self.characters)) != len(self.characters):
            raise ValueError("a vocabulary names each character once")
        points = [ord(character) for character in self.characters]
        self._id_of = np.full(0x110000, UNK, np.int32)
        self._id_of[points] = np.arange(NUM_SPECIAL, self.vocab_size, dtype=np.int32)
        self._point_of = np.array([0, 0, 0, ord(_REPLACEMENT), *points], np.uint32)

    @classmethod
    def train(cls, texts: Iterable[str]) -> "CharacterTokenizer":
        """The tokenizer that knows the characters of `texts`, in the order of their code points."""
        return cls(sorted(set().union(*texts)))

    @property
    def vocab_size(self) -> int:
        """Number of ids, the special ones counted."""
        return NUM_SPECIAL + len(self.characters)

    def encode(self, text: str) -> np.ndarray:
        """The int32 ids of `text`, no special tokens added; an unknown character is UNK."""
        return self._id_of[_code_points(text)]

    def encode_batch(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all `texts`, end to end (int32), and the length of each (int64)."""
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        return self.encode("".join(texts)), lengths

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """The text of `ids`: PAD, BOS and EOS are dropped, UNK becomes U+FFFD.

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
        points = self._point_of[ids[ids >= UNK]]
        return points.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")

    def save(self, path: str | Path) -> None:
        """Write the vocabulary as JSON."""
        # A list, escaped: two lone surrogates side by side in one JSON string would become a single character.
        Path(path).write_text(json.dumps({"type": "characters", "characters": self.characters}) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> "CharacterTokenizer":
        """Read what `save` wrote. Raises ValueError for a file that is something else, or damaged."""
        try:
            content = json.loads(Path(path).read_bytes())
            if not isinstance(content, dict) or content.get("type") != "characters":
                raise ValueError('no {"type": "characters"}')
            if not isinstance(content.get("characters"), list):
                raise ValueError("no list of characters")
            return cls(content["characters"])
        except ValueError as error:  # json's and Unicode's errors are ValueErrors too
            raise ValueError(f"{path} is not a character tokenizer: {error}") from None


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
