"""A tokenizer with one token for each byte of UTF-8: no vocabulary to learn, nothing unknown."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from data.tokenizers.base import NUM_SPECIAL, REPLACEMENT, UNK, Normalization, Tokenizer


class ByteTokenizer(Tokenizer):
    """Ids 4 to 259 are the bytes 0 to 255.

    `decode(encode(text))` is the normalised text, without normalisation the text itself, for every string there is:
    newlines, NUL and lone surrogates too. Bytes that a model makes up and that are no text become U+FFFD.
    """

    kind = "bytes"

    def __init__(self, normalization: Normalization = "none") -> None:
        super().__init__(normalization)

    @property
    def vocab_size(self) -> int:
        return NUM_SPECIAL + 256

    def encode_batch(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        encoded = [self.canonical(text).encode("utf-8", "surrogatepass") for text in texts]
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        return np.frombuffer(b"".join(encoded), np.uint8).astype(np.int32) + NUM_SPECIAL, lengths

    def _decode(self, ids: np.ndarray) -> str:
        parts = np.split(ids, np.flatnonzero(ids == UNK))
        return REPLACEMENT.join(_text((part[part != UNK] - NUM_SPECIAL).astype(np.uint8).tobytes()) for part in parts)

    def _record(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "ByteTokenizer":
        return cls(record.get("normalization", "none"))


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return content.decode("utf-8", "replace")
