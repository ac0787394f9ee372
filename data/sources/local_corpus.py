"""Reading of a user's files, which are checked in full before anything is written.

Training pairs with a blank side are left out, both sides together, and counted; in a held-out split every line stays at
its place. Where no file is named validation, it is drawn from the training pairs: 5% of the distinct sources, by a hash
of the source, so that a source with several targets lies in one split only. A single file gives 5% for test as well. Of
text, the last tenth is for validation then: of the characters where there is one document, or else of the documents.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data.sources.file_discovery import WHOLE, Files, corpus_files
from data.sources.grammar import Source
from data.sources.text_files import file_digest, read_lines, read_text

HELD_OUT = 0.05
"""Share of the distinct sources that each split drawn from the training pairs gets."""
TRAIN_SHARE = 0.9
"""What is left for training of a text without a validation split."""

_FORMAT = 1
"""To be raised when the same files come to mean other examples."""
_LONGEST_DOCUMENT = 2**30
"""Characters. A record is one protocol buffer, which holds 2 GiB."""

Pairs = list[tuple[str, str]]


@dataclass(frozen=True)
class Corpus:
    """Examples of a user's files, by split."""

    splits: dict[str, Pairs] | dict[str, list[str]]
    report: str
    """What was decided and what was left out, in words."""


@dataclass(frozen=True)
class LocalSource:
    """A source whose files have been found."""

    source: Source
    files: Files
    languages: tuple[str, str] | None

    @classmethod
    def find(cls, source: Source) -> "LocalSource":
        """Raises ValueError as `corpus_files`."""
        return cls(source, *corpus_files(source))

    def digest(self) -> str:
        """Return a digest, 20 hexadecimal digits, of the files' content, splits, and columns or languages.

        Raises ValueError for a file that is empty or cannot be read.
        """
        files = {split: [file_digest(path) for path in paths] for split, paths in self.files.items()}
        gzipped = {split: [path.suffix == ".gz" for path in paths] for split, paths in self.files.items()}
        sides = self.source.direction if self.source.kind == "tsv" else self.languages
        key = json.dumps([_FORMAT, self.source.kind, sides, files, gzipped])
        return hashlib.blake2b(key.encode(), digest_size=10).hexdigest()

    def read(self, digest: str) -> Corpus:
        """Read all examples. Raises ValueError, one line, for whatever is wrong with the files.

        One thing may be that they are being written: what was read must have the `digest` that was asked for before.
        """
        corpus = _read_text(self.files) if self.source.kind == "text" else self._read_pairs()
        if self.digest() != digest:
            raise ValueError(f"{self.source}: its files changed while they were read: try again when they are complete")
        return corpus

    def _read_pairs(self) -> Corpus:
        notes = [" → ".join(self.languages)] if self.languages else []
        splits: dict[str, Pairs] = {}
        ignored = 0
        for split, paths in self.files.items():
            if self.source.kind == "tsv":
                first, second = map(int, self.source.direction or (1, 2))
                splits[split], more = _read_tsv(paths[0], first - 1, second - 1)
                ignored += more
            else:
                splits[split] = _read_parallel(*paths)
        if ignored:
            notes.append(f"other columns ignored in {ignored:,} lines")
        train = "train" if "train" in splits else WHOLE
        kept = [pair for pair in splits[train] if pair[0].strip() and pair[1].strip()]
        if blank := len(splits[train]) - len(kept):
            notes.append(f"{blank:,} training pairs with a blank side left out")
        if not kept:
            raise ValueError(f"{self.source}: {self.files[train][0]} has no pair without a blank side to train on")
        splits[train] = kept
        missing = ["validation"] * ("validation" not in splits) + ["test"] * (train == WHOLE)
        if missing:
            splits = _draw(splits.pop(train), missing, str(self.source)) | splits
            notes.append(f"{' and '.join(missing)} drawn by source from the training pairs")
        return Corpus(splits, "; ".join(notes))


def _read_tsv(path: Path, first: int, second: int) -> tuple[Pairs, int]:
    pairs, more = [], 0
    for number, line in enumerate(read_lines(path), start=1):
        columns = line.split("\t")
        if len(columns) > max(first, second):
            pairs.append((columns[first], columns[second]))
            more += len(columns) > 2
        elif not line.strip():
            pairs.append(("", ""))
        else:
            wanted = max(first, second) + 1
            raise ValueError(f"{path}, line {number}: {len(columns)} column(s), TAB between them; wanted: {wanted}")
    return pairs, more


def _read_parallel(source: Path, target: Path) -> Pairs:
    sources, targets = list(read_lines(source)), list(read_lines(target))
    if len(sources) != len(targets):
        raise ValueError(
            f"{source} has {len(sources):,} lines, but {target} has {len(targets):,}: line n of one must belong to "
            "line n of the other"
        )
    return list(zip(sources, targets))


def _draw(pairs: Pairs, names: Sequence[str], name: str) -> dict[str, Pairs]:
    """Draw the pairs by split, in their order; `names` are the splits to be drawn, `train` has the rest."""
    ranks = np.array([_hash(source) for source, _ in pairs], np.uint64)
    distinct = np.unique(ranks)
    count = int(np.ceil(HELD_OUT * len(distinct)))
    if len(distinct) <= count * len(names):
        raise ValueError(f"{name}: {len(distinct)} distinct sources are too few to draw {' and '.join(names)} from")
    numbers = np.searchsorted(distinct, ranks) // count
    splits: dict[str, Pairs] = {split: [] for split in ("train", *names)}
    for number, pair in zip(numbers, pairs):
        splits[names[number] if number < len(names) else "train"].append(pair)
    return splits


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


def _read_text(files: Files) -> Corpus:
    splits: dict[str, list[str]] = {}
    for split, paths in files.items():
        splits[split] = [read_text(path) for path in paths]
        for path, text in zip(paths, splits[split]):
            if len(text) > _LONGEST_DOCUMENT:
                raise ValueError(f"{path} has {len(text):,} characters, more than a document may have: split the file")
    notes = [f"{sum(len(text) for texts in splits.values() for text in texts):,} characters"]
    train = "train" if "train" in splits else WHOLE
    if "validation" not in splits:
        texts = splits.pop(train)
        cut = int(TRAIN_SHARE * len(texts[0] if len(texts) == 1 else texts))
        if not cut:
            raise ValueError(f"{files[train][0]} is too short to take a tenth of it for validation")
        if len(texts) == 1:
            drawn = {"train": [texts[0][:cut]], "validation": [texts[0][cut:]]}
        else:
            drawn = {"train": texts[:cut], "validation": texts[cut:]}
        splits = drawn | splits
        notes.append(f"the last tenth of the {'characters' if len(texts) == 1 else 'documents'} is for validation")
    return Corpus(splits, "; ".join(notes))
