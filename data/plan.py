"""Batch plans: which examples make up which batch, as pure functions of the global batch index.

The position in the data is one integer, the number of batches consumed. With it, the seed and the lengths of the
examples a run resumes with the same batches on any number of workers, processes or devices: there is no iterator state.
"""

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from data.seeds import check_seed


@dataclass
class TrainPlan:
    """An endless sequence of training batches: epochs of `batches_per_epoch`, each with every example exactly once.

    An epoch shuffles all examples, sorts them by bucket (within one they stay in random order), cuts that sequence into
    batches, and shuffles the batches. What is left of a bucket when its full batches are cut goes in front of the next
    one, which is wider. What is left at the very end is not dropped: the last bucket's examples are dealt out evenly
    to as few batches as hold them, each filled up with rows of padding, id -1, at its end. So only the last bucket's
    batches have rows -1, fewer than one batch of them together.

    How many batches of which bucket an epoch has is the same for all epochs; which examples they hold depends on
    (seed, epoch) alone. With one bucket, the examples come in the shuffled order itself, whatever the batch size.

    Raises ValueError for no examples, a bucket without rows, or a seed out of range.
    """

    buckets: np.ndarray
    """int [N]: each example's bucket. A bucket's width holds whatever the ones before hold."""
    rows: tuple[int, ...]
    """Rows of a batch, for each bucket."""
    seed: int
    stream: int = 0
    """Datasets of a mixture have different streams, and so different orders."""
    _epochs: dict[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict, init=False, repr=False)
    _lock: Any = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.buckets) < 1:
            raise ValueError("there are no examples to train on")
        if min(self.rows) < 1:
            raise ValueError(f"every bucket must have at least 1 row, not {min(self.rows)}")
        check_seed(self.seed)
        buckets, sizes, carried = [], [], 0
        for bucket, count in enumerate(np.bincount(self.buckets, minlength=len(self.rows)).tolist()):
            here, rows = carried + count, self.rows[bucket]
            if bucket < len(self.rows) - 1:
                batches, carried = divmod(here, rows)
                sizes += [rows] * batches
            else:
                batches = -(-here // rows)
                sizes += [here * (n + 1) // batches - here * n // batches for n in range(batches)]
            buckets += [bucket] * batches
        self.batch_buckets = np.array(buckets)
        """int [batches_per_epoch]: the bucket of each batch of an epoch, before they are shuffled."""
        self._ends = np.cumsum(sizes)

    @property
    def batches_per_epoch(self) -> int:
        """Return the number of batches that hold every example once."""
        return len(self._ends)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        """Return the examples of batch `index` (int64 [rows of its bucket], -1: none), and its bucket."""
        if index < 0:
            raise IndexError(f"batch index must not be negative, but is {index}")
        epoch, index = divmod(index, self.batches_per_epoch)
        examples, batches = self._epoch(epoch)
        batch = batches[index]
        bucket, end = int(self.batch_buckets[batch]), self._ends[batch]
        chosen = examples[self._ends[batch - 1] if batch else 0 : end]
        return _fill(chosen, self.rows[bucket]), bucket

    def _epoch(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the order of an epoch's examples, as they are cut into batches, and of its batches."""
        with self._lock:  # else every reading thread would make the same permutation at a seam
            if epoch not in self._epochs:
                # Two orders serve all reading threads around a seam; older ones go, to free their memory.
                while len(self._epochs) >= 2:
                    del self._epochs[min(self._epochs)]
                # RandomState's algorithms are frozen by NumPy's policy (NEP 19), Generator's are not: an upgrade must
                # not change the order under a run that is resumed.
                generator = np.random.RandomState(np.random.PCG64([self.seed, epoch, self.stream]))
                examples, batches = generator.permutation(len(self.buckets)), np.arange(self.batches_per_epoch)
                if len(self.rows) > 1:
                    examples = examples[np.argsort(self.buckets[examples], kind="stable")]
                    batches = generator.permutation(self.batches_per_epoch)
                self._epochs[epoch] = examples, batches
            return self._epochs[epoch]

    def __getstate__(self) -> dict[str, Any]:
        """Drop the lock and the cached orders, which worker processes make anew."""
        return self.__dict__ | {"_lock": None, "_epochs": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state | {"_lock": threading.Lock()})


class EvalPlan(Sequence):
    """Every example exactly once: bucket by bucket, and in file order within each.

    Item n is batch n as `TrainPlan` gives them: examples (int64 [rows of its bucket], -1 at the end: none) and bucket.
    With one bucket the order is that of the file. Otherwise results are put in order by the examples' numbers.
    """

    def __init__(self, buckets: np.ndarray, rows: Sequence[int]) -> None:
        """`buckets` int [N], each example's; `rows` of a batch for each bucket, at least 1, else ValueError."""
        if min(rows) < 1:
            raise ValueError(f"batch_size must be at least 1, not {min(rows)}")
        self._batches = []
        for bucket, size in enumerate(rows):
            members = np.flatnonzero(buckets == bucket)
            self._batches += [
                (_fill(members[begin : begin + size], size), bucket) for begin in range(0, len(members), size)
            ]

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index):
        return self._batches[index]


def process_shard(rows: np.ndarray, process: int, processes: int) -> np.ndarray:
    """Return the rows of a batch that process `process` of `processes` reads: an equal, contiguous part.

    Raises ValueError unless the rows can be divided evenly.
    """
    if not 0 <= process < processes:
        raise ValueError(f"process must be between 0 and {processes - 1}, not {process}")
    if len(rows) % processes:
        raise ValueError(f"a batch of {len(rows)} rows cannot be divided evenly among {processes} processes")
    size = len(rows) // processes
    return rows[process * size : (process + 1) * size]


def _fill(examples: np.ndarray, rows: int) -> np.ndarray:
    """Pad `examples` to `rows` numbers, -1 where there are none."""
    filled = np.full(rows, -1, np.int64)
    filled[: len(examples)] = examples
    return filled


def dataset_at(index: int, weights: Sequence[Fraction]) -> tuple[int, int]:
    """Return which dataset of a mixture batch `index` is of, and how many batches of it come before.

    The first dataset has round(n · weight) of the first n batches; the second its share of the others, rounded
    likewise; and so on. A pure function of the index, so rounding errors do not accumulate.
    """
    left = Fraction(1)
    for dataset, weight in enumerate(weights[:-1]):
        share = weight / left
        before, after = (math.floor(n * share + Fraction(1, 2)) for n in (index, index + 1))
        if after > before:
            return dataset, before
        index, left = index - before, left - weight
    return len(weights) - 1, index


@dataclass(frozen=True)
class MixturePlan:
    """Training batches of several datasets: a pure function of the global batch index, as `TrainPlan`.

    Each batch is of one dataset. In any number of batches from the first on, a dataset has its share of them, up to
    rounding. Each has its own epochs and orders, so a small one is repeated more often.
    """

    weights: tuple[Fraction, ...]
    """Shares of the batches; their sum is 1."""
    plans: tuple[TrainPlan, ...]
    """One for each dataset, over its own examples."""
    examples: tuple[np.ndarray, ...]
    """int [N] for each dataset: the numbers of its examples among those of all."""

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        """Return the examples of batch `index` (int64 [rows of its bucket], -1: none), and its bucket."""
        if index < 0:
            raise IndexError(f"batch index must not be negative, but is {index}")
        dataset, number = dataset_at(index, self.weights)
        rows, bucket = self.plans[dataset][number]
        return np.where(rows < 0, -1, self.examples[dataset][rows]), bucket
