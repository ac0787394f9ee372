"""From a data config to batches: dicts of NumPy arrays, ready for the compiled step.

    pairs: {"inputs": {"source": int32 [B, S], "target": int32 [B, T]}, "labels": int32 [B, T], "weights": bool [B, T]}
    text:  {"inputs": {"tokens": int32 [B, T]},                         "labels": int32 [B, T], "weights": bool [B, T]}

For a source sentence x and its target y, `source` is x EOS, `target` (the decoder's input) BOS y, and `labels` y EOS,
all filled with PAD. `weights` is True where a label counts: up to EOS, which a model must learn, and never at PAD.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from data.buckets import BucketPlan, bucket_widths
from data.config import DataConfig
from data.plan import EvalPlan, TrainPlan
from data.prepare import prepare
from data.records import Examples, check_split, read_columns
from data.sequences import Sequences, encode
from data.tokenizer import BOS, EOS, PAD, Tokenizer
from data.tokenizers import load_tokenizer, make_tokenizers

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

Batch = dict[str, Any]

_READ_THREADS = 4
_PREFETCH_BATCHES = 16


@dataclass(frozen=True)
class Data(ABC):
    """A dataset, encoded: `PairData` or `TextData`."""

    config: DataConfig
    builder: "tfds.core.DatasetBuilder"
    tokenizers: Mapping[str, Tokenizer]
    """source and target, or text."""
    encoded: Mapping[str, Mapping[str, Sequences]]
    """Side (as in `tokenizers`) -> split -> ids."""

    @property
    def vocab_sizes(self) -> dict[str, int]:
        """Ids of each tokenizer."""
        return {side: tokenizer.vocab_size for side, tokenizer in self.tokenizers.items()}

    def save_tokenizers(self, directory: str | Path) -> None:
        """Write `tokenizer_SIDE.json` for each side; `load(config, tokenizers_from=directory)` reads them."""
        Path(directory).mkdir(parents=True, exist_ok=True)
        for side, tokenizer in self.tokenizers.items():
            tokenizer.save(_tokenizer_file(directory, side))

    def examples(self, split: str) -> Examples:
        """The examples of `split` as dicts of str, in the order of `eval_batches` (text: whole documents)."""
        return Examples(self.builder, split)

    @abstractmethod
    def num_examples(self, split: str) -> int:
        """Rows of `eval_batches(split)`, its last batch's filling not counted (text: chunks)."""

    @property
    @abstractmethod
    def num_train_examples(self) -> int:
        """Rows of one epoch of `train_batches`."""

    @abstractmethod
    def blank_batches(self) -> list[Batch]:
        """A batch of nothing but padding for each shape that `train_batches` gives, narrow to wide: what to compile."""

    @abstractmethod
    def _train_plan(self, seed: int) -> Callable[[int], Batch]:
        """Global batch index -> batch, the same for the same seed."""

    @abstractmethod
    def _eval_batch(self, split: str, rows: np.ndarray) -> Batch: ...

    def train_batches(self, seed: int, start: int = 0) -> Iterator[Batch]:
        """Batches for ever, from global batch index `start` on; threads prepare the next ones meanwhile.

        Starting at k gives what starting at 0 gives after k batches. Raises ValueError for a batch larger than the
        training split, and for a negative seed or start.
        """
        if start < 0:
            raise ValueError(f"the batch index to start at must not be negative, but is {start}")
        return _read(self._train_plan(seed), start)

    def eval_batches(self, split: str, batch_size: int | None = None) -> Iterator[Batch]:
        """Every example of `split` exactly once, in file order.

        All batches have the same shape: the last is filled with rows that are all PAD and have no weight. Raises
        ValueError for an unknown or empty split.
        """
        size = self.config.batch_size if batch_size is None else batch_size
        plan = EvalPlan(self.num_examples(split), size)
        return (self._eval_batch(split, plan[index]) for index in range(len(plan)))


@dataclass(frozen=True)
class PairData(Data):
    """Sentences and what they are to be turned into.

    A pair with a side longer than its maximum is left out of training (half a sentence would teach a wrong answer), and
    cut in evaluation, where every pair counts: the source keeps its EOS, the target loses it. `load` counts both.
    """

    max_source_length: int
    max_target_length: int
    kept: np.ndarray
    """The training pairs that fit, by number."""
    source_widths: tuple[int, ...]
    """What sources are padded to in training, ascending; each batch has one of these."""

    def num_examples(self, split: str) -> int:
        check_split(self.builder, split)
        return len(self.encoded["target"][split].lengths)

    @property
    def num_train_examples(self) -> int:
        return len(self.kept)

    def blank_batches(self) -> list[Batch]:
        rows = np.full(self.config.batch_size, -1)
        return [self._batch("train", rows, width) for width in self.source_widths]

    def _train_plan(self, seed: int) -> Callable[[int], Batch]:
        lengths = self.encoded["source"]["train"].lengths[self.kept]
        plan = BucketPlan(lengths, self.source_widths, self.config.batch_size, seed)

        def batch(index: int) -> Batch:
            rows, width = plan[index]
            return self._batch("train", self.kept[rows], width)

        return batch

    def _eval_batch(self, split: str, rows: np.ndarray) -> Batch:
        return self._batch(split, rows, self.max_source_length)

    def _batch(self, split: str, rows: np.ndarray, source_width: int) -> Batch:
        sources = self.encoded["source"][split]
        source = sources.rows(rows, source_width)
        source[sources.longer(rows, source_width), -1] = EOS
        labels = self.encoded["target"][split].rows(rows, self.max_target_length)
        target = _shift_right(labels, np.full(len(rows), BOS))
        return {"inputs": {"source": source, "target": target}, "labels": labels, "weights": labels != PAD}


@dataclass(frozen=True)
class TextData(Data):
    """Documents joined by EOS into one stream per split, cut into chunks of `max_target_length` tokens.

    Labels are the stream itself, the tokens before them the inputs (before the first: EOS, since a document comes
    after one). So every token is predicted exactly once; the last chunk is filled with PAD, without weight.
    """

    def num_examples(self, split: str) -> int:
        check_split(self.builder, split)
        return -(-len(self.encoded["text"][split].ids) // self.config.max_target_length)

    @property
    def num_train_examples(self) -> int:
        return self.num_examples("train")

    def blank_batches(self) -> list[Batch]:
        return [self._eval_batch("train", np.full(self.config.batch_size, -1))]

    def _train_plan(self, seed: int) -> Callable[[int], Batch]:
        plan = TrainPlan(self.num_train_examples, self.config.batch_size, seed)
        return lambda index: self._eval_batch("train", plan[index])

    def _eval_batch(self, split: str, rows: np.ndarray) -> Batch:
        stream, width = self.encoded["text"][split], self.config.max_target_length
        begin = np.where(rows < 0, len(stream.ids), rows * width)
        labels = stream.spans(begin, np.minimum(begin + width, len(stream.ids)), width)
        before = np.where(rows <= 0, EOS, stream.ids[begin - 1])
        return {"inputs": {"tokens": _shift_right(labels, before)}, "labels": labels, "weights": labels != PAD}


def load(config: DataConfig, tokenizers_from: str | Path | None = None) -> PairData | TextData:
    """Prepare, read and encode the dataset that `config` names.

    Tokenizers are trained on the training split, or read from the directory `tokenizers_from`. Prints one line for each
    thing that does not go in whole: unknown characters in held-out splits, and examples that are too long. Raises
    ValueError with one line for whatever makes training impossible.
    """
    return load_from(prepare(config.source, config.directory), config, tokenizers_from)


def load_from(
    builder: "tfds.core.DatasetBuilder", config: DataConfig, tokenizers_from: str | Path | None = None
) -> PairData | TextData:
    """`load` for a builder that is prepared already."""
    names = set(builder.info.features)
    sides = next((sides for sides in (("source", "target"), ("text",)) if names.issuperset(sides)), None)
    if sides is None:
        raise ValueError(f"{builder.name} has features {', '.join(sorted(names))}; wanted: source and target, or text")
    check_split(builder, "train")
    if sides == ("text",) and not config.max_target_length:
        raise ValueError("max_target_length, the length of a chunk, must be given for text")

    texts = {
        split: read_columns(builder, split, sides) for split, info in builder.info.splits.items() if info.num_examples
    }
    tokenizers = (
        {side: load_tokenizer(_tokenizer_file(tokenizers_from, side)) for side in sides}
        if tokenizers_from
        else make_tokenizers(config, texts["train"])
    )
    encoded = {
        side: {
            split: encode(tokenizers[side], columns[side], f"{side} of {builder.name}, split {split}")
            for split, columns in texts.items()
        }
        for side in sides
    }
    for side, of_split in encoded.items():
        for split, sequences in of_split.items():
            if sequences.num_unknown:
                print(f"{builder.name}, {split}: {sequences.num_unknown:,} tokens of {side} are unknown")
    data = {"config": config, "builder": builder, "tokenizers": tokenizers, "encoded": encoded}
    return TextData(**data) if sides == ("text",) else _fit_pairs(data)


def _fit_pairs(data: dict[str, Any]) -> PairData:
    config, builder, encoded = data["config"], data["builder"], data["encoded"]
    longest = {side: int(of_split["train"].lengths.max()) for side, of_split in encoded.items()}
    max_source = config.max_source_length or longest["source"]
    max_target = config.max_target_length or longest["target"]
    kept = np.arange(0)
    for split in encoded["source"]:
        source, target = encoded["source"][split].lengths, encoded["target"][split].lengths
        fits = (source <= max_source) & (target <= max_target)
        if split == "train":
            kept = np.flatnonzero(fits)
        if not fits.all():
            print(
                f"{builder.name}, {split}: {np.count_nonzero(~fits):,} of {len(fits):,} examples are longer than "
                f"{max_source} source or {max_target} target tokens and are "
                + ("left out" if split == "train" else "cut")
            )
    widths = bucket_widths(encoded["source"]["train"].lengths[kept], config.buckets) if len(kept) else ()
    # The last is the limit itself: evaluation has it too, so the two share a shape.
    widths = (*widths[:-1], max_source)
    return PairData(**data, max_source_length=max_source, max_target_length=max_target, kept=kept, source_widths=widths)


def _shift_right(labels: np.ndarray, first: np.ndarray) -> np.ndarray:
    """What a decoder has read before each label: `first` [B], then the labels; PAD where there is no label."""
    shifted = np.concatenate([first[:, None], labels[:, :-1]], axis=1)
    return np.where(labels == PAD, PAD, shifted).astype(np.int32)


def _read(make: Callable[[int], Batch], start: int) -> Iterator[Batch]:
    import grain

    options = grain.ReadOptions(num_threads=_READ_THREADS, prefetch_buffer_size=_PREFETCH_BATCHES)
    return iter(grain.MapDataset.range(start, sys.maxsize).map(make).to_iter_dataset(options))


def _tokenizer_file(directory: str | Path, side: str) -> Path:
    return Path(directory) / f"tokenizer_{side}.json"
