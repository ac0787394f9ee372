"""Subword tokenizers: byte-level BPE, or whatever a `tokenizer.json` describes, both by Hugging Face `tokenizers`."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data.home import expand_home
from data.tokenizers.base import NUM_SPECIAL, REPLACEMENT, UNK, Normalization, Tokenizer, normalize, without_surrogates
from data.unknown_token import with_unknown_token

_CHUNK = 16_384
"""Texts that are encoded at a time: what the library makes of a text is many times as big as its ids."""


class SubwordTokenizer(Tokenizer):
    """A tokenizer of Hugging Face `tokenizers`, its ids shifted by the 4 special ones of this library.

    Of `train`: `decode(encode(text))` is the normalised text for every string without lone surrogates, for pieces are
    made of bytes, so none is unknown; a lone surrogate, which no UTF-8 file can hold, becomes U+FFFD. Of a file:
    whatever its own normaliser and decoder make of the text, which may be lower-cased or spaced otherwise.

    The file's own special tokens are ordinary pieces here, which no text is split at; its unknown token is UNK, also
    where a text spells it out (`[UNK]`), if the file's model then takes it for one piece. In a file without an unknown
    token (`data.unknown_token`), what its vocabulary lacks is UNK all the same, and so counted as unknown.
    """

    kind = "bpe"

    def __init__(self, content: str, normalization: Normalization = "none") -> None:
        """`content` is what a `tokenizer.json` holds. Raises ValueError if it is something else."""
        import tokenizers

        super().__init__(normalization)
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(content)
            complete, unknown = with_unknown_token(content)
            self._encoder = self._tokenizer if complete is content else tokenizers.Tokenizer.from_str(complete)
        except Exception as error:  # the library raises nothing narrower
            raise ValueError(f"Hugging Face tokenizers cannot read it ({error})") from None
        for each in (self._tokenizer, self._encoder):
            each.no_truncation()
            each.no_padding()
            each.encode_special_tokens = True  # meaning: as the ordinary text that they are
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        self._size = max(vocabulary.values(), default=-1) + 1
        encoded = self._encoder.get_vocab(with_added_tokens=True)
        self._id_of = np.full(max(encoded.values(), default=-1) + 1, UNK, np.int32)  # by the encoder's id
        for token, number in encoded.items():
            if token != unknown:
                self._id_of[number] = vocabulary[token] + NUM_SPECIAL

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int, normalization: Normalization = "none") -> "SubwordTokenizer":
        """Train byte-level BPE with at most `vocab_size` ids, fewer where `texts` are too few for so many.

        Words are kept apart as GPT-2 does; a space belongs to the word behind it. Raises ValueError for a vocabulary
        smaller than the 256 bytes.
        """
        from tokenizers import Tokenizer as HuggingFaceTokenizer
        from tokenizers import decoders, models, pre_tokenizers, trainers

        if vocab_size < NUM_SPECIAL + 256:
            raise ValueError(f"vocab_size must be at least {NUM_SPECIAL + 256} for bpe, not {vocab_size}")
        tokenizer = HuggingFaceTokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size - NUM_SPECIAL,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        normal = (without_surrogates(normalize(text, normalization)) for text in texts)
        tokenizer.train_from_iterator(normal, trainer)
        return cls(tokenizer.to_str(), normalization)

    @classmethod
    def from_file(cls, path: str | Path, normalization: Normalization = "none") -> "SubwordTokenizer":
        """Read the tokenizer of a `tokenizer.json`. Raises ValueError, one line, for a file that is none."""
        path = expand_home(str(path), "--data.tokenizer_file")
        try:
            return cls(Path(path).read_text(encoding="utf-8"), normalization)
        except OSError as error:
            raise ValueError(f"cannot read {path}: {error.strerror}") from None
        except ValueError as error:
            raise ValueError(f"{path} is not a tokenizer.json: {' '.join(str(error).split())}") from None

    @property
    def vocab_size(self) -> int:
        return NUM_SPECIAL + self._size

    def encode_batch(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        encoded = [np.array(ids, np.int32) for ids in self._encoded(texts)]
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        ids = np.concatenate([np.zeros(0, np.int32), *encoded])
        return self._id_of[ids], lengths

    def _encoded(self, texts: Sequence[str]) -> Iterator[list[int]]:
        for start in range(0, len(texts), _CHUNK):
            chunk = [self._text(text) for text in texts[start : start + _CHUNK]]
            for encoding in self._encoder.encode_batch_fast(chunk, add_special_tokens=False):
                yield encoding.ids

    def _decode(self, ids: np.ndarray) -> str:
        parts = np.split(ids, np.flatnonzero(ids == UNK))
        return REPLACEMENT.join(
            self._tokenizer.decode((part[part != UNK] - NUM_SPECIAL).tolist(), skip_special_tokens=False)
            for part in parts
        )

    def canonical(self, text: str) -> str:
        """As `Tokenizer.canonical`, lone surrogates replaced. It knows nothing of what a file's own normaliser does."""
        return self._text(text)

    def _text(self, text: str) -> str:
        return without_surrogates(super().canonical(text))

    def _record(self) -> dict[str, Any]:
        return {"tokenizer": json.loads(self._tokenizer.to_str())}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "SubwordTokenizer":
        if not isinstance(record.get("tokenizer"), dict):
            raise ValueError("no tokenizer in it")
        return cls(json.dumps(record["tokenizer"]), record.get("normalization", "none"))
