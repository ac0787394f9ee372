"""Tokenized datasets, and their batches for training and evaluation."""

import itertools
import math
import os
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from data.buckets import find_buckets, rows_per_bucket
from data.config import DataConfig
from data.plan import EvalPlan, MixturePlan, TrainPlan, process_shard
from data.sequences import Sequences
from data.sources.records import ConcatExamples, Dataset, Examples, check_split
from data.tokenizers.base import Tokenizer

Batch = dict[str, Any]

_READ_THREADS = 4
_PREFETCH_BATCHES = 16


@dataclass(frozen=True)
class EncodedDatasets:
    """Tokenized datasets, before their examples are laid out in rows of batches."""

    config: DataConfig
    datasets: tuple[Dataset, ...]
    """More than one in a mixture."""
    mixture_weights: tuple[Fraction, ...]
    """Each dataset's share of the training batches; their sum is 1."""
    tokenizers: Mapping[str, Tokenizer]
    """By side: source and target, or text."""
    encoded: Mapping[str, Mapping[str, Sequences]]
    """Split -> side -> token ids, those of all datasets concatenated."""
    sizes: Mapping[str, tuple[int, ...]]
    """Split -> number of examples of each dataset."""
    fingerprints: Mapping[str, Mapping[str, Mapping[str, Any]]]
    """Dataset -> split -> digest of its texts (`data.sources.fingerprint`)."""

    def examples_of(self, split: str) -> list[tuple[Dataset, slice]]:
        """Return the datasets that have examples in `split`, each with the place of its examples among those of all."""
        ends = itertools.accumulate(self.sizes[split])
        parts = zip(self.datasets, self.sizes[split], ends, strict=True)
        return [(dataset, slice(end - size, end)) for dataset, size, end in parts if size]


@dataclass(frozen=True)
class Data(EncodedDatasets, ABC):
    """Tokenized datasets as batches: `PairData` or `TextData`."""

    widths: tuple[tuple[int, ...], ...]
    """Widths of each bucket's batches, narrow to wide: (source, target), or (tokens,)."""

    @property
    def vocab_sizes(self) -> dict[str, int]:
        """Return the number of ids of each tokenizer."""
        return {side: tokenizer.vocab_size for side, tokenizer in self.tokenizers.items()}

    def save_tokenizers(self, directory: str | Path) -> None:
        """Write `tokenizer_SIDE.json` for each side; `load(config, tokenizers_from=directory)` reads them.

        The directory is written whole or, if interrupted, not at all. An existing one is left as it is.
        """
        directory = Path(directory)
        if directory.exists():
            return
        temporary = directory.with_name(f"{directory.name}.{os.getpid()}.tmp")
        temporary.mkdir(parents=True, exist_ok=True)
        for side, tokenizer in self.tokenizers.items():
            tokenizer.save(tokenizer_file(temporary, side))
        try:
            temporary.rename(directory)
        except OSError:
            if not directory.exists():
                raise
            shutil.rmtree(temporary)  # another process of the same run was faster

    def examples(self, split: str) -> Examples | ConcatExamples:
        """Return the examples of `split` as dicts of str, in file order (text: whole documents).

        Of a mixture, those of all datasets that have the split, concatenated. Raises ValueError if none has.
        """
        parts = [Examples(dataset, split) for dataset in datasets_with(self.datasets, split)]
        return parts[0] if len(parts) == 1 else ConcatExamples(parts)

    def num_examples(self, split: str) -> int:
        """Return the rows of `eval_batches(split)`, padding rows not counted.

        Raises ValueError for an unknown or empty split.
        """
        datasets_with(self.datasets, split)
        return self._num_rows(split)

    @property
    def num_train_examples(self) -> int:
        """Return the rows of one epoch of `train_batches`, padding rows not counted. Of a mixture, of all datasets."""
        return sum(map(len, self._train_rows()))

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Return the rows of each bucket's batches, narrow to wide."""
        config = self.config
        return rows_per_bucket(self.widths, config.batch_size, config.tokens_per_batch, config.row_multiple)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shape of each bucket's batches, narrow to wide: (rows, source, target), or (rows, tokens)."""
        return tuple((rows, *widths) for rows, widths in zip(self.batch_sizes, self.widths, strict=True))

    def blank_batches(self) -> list[Batch]:
        """Return a batch of padding for each shape of `train_batches`, narrow to wide, to compile a step with."""
        return [self._batch("train", np.full(rows, -1), bucket) for bucket, rows in enumerate(self.batch_sizes)]

    @property
    def batches_per_epoch(self) -> int:
        """Return the training batches of one epoch; of a mixture, until every example of each dataset was seen."""
        return max(
            math.ceil(plan.batches_per_epoch / weight)
            for plan, weight in zip(self._train_plan(0).plans, self.mixture_weights, strict=True)
        )

    def padding(self) -> tuple[float, int]:
        """Return the share of padding among the tokens of training batches, inputs of both sides, and tokens per batch.

        Both are means over whole epochs; a mixture's datasets count by their shares.
        """
        real, held = Fraction(0), Fraction(0)
        sizes = [rows * sum(widths) for rows, *widths in self.shapes]
        for weight, rows in zip(self.mixture_weights, self._train_rows(), strict=True):
            plan = TrainPlan(self._buckets("train", rows), self.batch_sizes, 0)
            batches = plan.batches_per_epoch
            held += weight * sum(sizes[bucket] for bucket in plan.batch_buckets.tolist()) / batches
            real += weight * int(self._lengths("train", rows).sum()) / batches
        return float(1 - real / held), round(held)

    def train_batches(
        self, seed: int, start: int = 0, process: int = 0, processes: int = 1, workers: int = 0
    ) -> Iterator[Batch]:
        """Return an endless iterator of training batches from global batch index `start` on; it prefetches.

        Starting at k gives what starting at 0 gives after k batches, whatever the other arguments are or have been.

        Args:
          seed: of the order.
          start: batches that have been consumed; the whole position in the data.
          process, processes: each of several training processes gets its own rows of every batch.
          workers: processes of Grain's that put batches together, each with a copy of the data; 0: threads of this one,
            which are seven times faster where a batch is only cut out of memory, as here. The program must start
            with `if __name__ == "__main__":`, since workers import it.

        Raises ValueError for a batch_size larger than the training split, rows that the processes do not divide, and a
        negative start, or a seed out of range.
        """
        if start < 0:
            raise ValueError(f"the batch index to start at must not be negative, but is {start}")
        plan = self._train_plan(seed)
        for rows in self.batch_sizes:
            process_shard(np.zeros(rows), process, processes)
        return _read(partial(self._train_batch, plan, process, processes), start, workers)

    def eval_batches(self, split: str, batch_size: int | None = None) -> Iterator[Batch]:
        """Yield every example of `split` once; `batch["rows"]` (int32 [B]) has their numbers, -1 where there is none.

        Batches are of one bucket each, narrow to wide, and within a bucket in file order. They have the shapes of
        training batches, or those with `batch_size` rows. What is missing of a bucket's last batch is filled with rows
        that are all PAD and have no weight. Raises ValueError for an unknown or empty split.
        """
        batch_sizes = self.batch_sizes if batch_size is None else (batch_size,) * len(self.widths)
        plan = EvalPlan(self._buckets(split, np.arange(self.num_examples(split))), batch_sizes)
        return (self._batch(split, some, bucket) | {"rows": some.astype(np.int32)} for some, bucket in plan)

    @abstractmethod
    def _num_rows(self, split: str) -> int:
        """Return the number of rows that the split has."""

    @abstractmethod
    def _train_rows(self) -> tuple[np.ndarray, ...]:
        """Return the row ids of each dataset's training rows."""

    @abstractmethod
    def _lengths(self, split: str, row_ids: np.ndarray) -> np.ndarray:
        """Return the tokens of each row, int [len(row_ids), sides]."""

    @abstractmethod
    def _batch(self, split: str, row_ids: np.ndarray, bucket: int) -> Batch:
        """Return these rows as arrays of the bucket's widths; id -1 is a row of padding."""

    def _buckets(self, split: str, row_ids: np.ndarray) -> np.ndarray:
        return find_buckets(self._lengths(split, row_ids), self.widths)

    def _train_plan(self, seed: int) -> MixturePlan:
        row_ids, plans = self._train_rows(), []
        for stream, (dataset, rows) in enumerate(zip(self.datasets, row_ids, strict=True)):
            if not len(rows):
                raise ValueError(f"{dataset.name} has no examples to train on")
            plans.append(TrainPlan(self._buckets("train", rows), self.batch_sizes, seed, stream))
            if not self.config.tokens_per_batch and self.config.batch_size > len(rows):
                raise ValueError(
                    f"batch_size must be between 1 and the number of training examples of {dataset.name}, "
                    f"{len(rows)}, not {self.config.batch_size}"
                )
        return MixturePlan(self.mixture_weights, tuple(plans), row_ids)

    def _train_batch(self, plan: MixturePlan, process: int, processes: int, index: int) -> Batch:
        row_ids, bucket = plan[index]
        return self._batch("train", process_shard(row_ids, process, processes), bucket)


def datasets_with(datasets: Sequence[Dataset], split: str) -> list[Dataset]:
    """Return the datasets that have examples in `split`. Raises ValueError if there are none."""
    found = [each for each in datasets if split in each.info.splits and each.info.splits[split].num_examples]
    if not found:
        check_split(datasets[0], split)
    return found


def tokenizer_file(directory: str | Path, side: str) -> Path:
    """Return the path of the tokenizer of `side` in a run's directory of tokenizers."""
    return Path(directory) / f"tokenizer_{side}.json"


def _read(make: Callable[[int], Batch], start: int, workers: int) -> Iterator[Batch]:
    import grain

    options = grain.ReadOptions(num_threads=_READ_THREADS, prefetch_buffer_size=_PREFETCH_BATCHES)
    batches = grain.MapDataset.range(start, sys.maxsize).map(make).to_iter_dataset(options)
    if workers:
        from absl import flags

        if not flags.FLAGS.is_parsed():
            flags.FLAGS.mark_as_parsed()  # Grain's processes read the flags
        batches = batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))
    return iter(batches)
