"""Which examples make up which batch: pure functions of the global batch index.

The position in the data is one integer, the number of batches consumed. Whoever knows it, the seed and the number of
examples can go on with the very same batches, on any number of workers or devices: there is no iterator state.
"""

import threading
from dataclasses import dataclass, field

import numpy as np


@dataclass
class TrainPlan:
    """Batches for ever, each epoch in an order of its own.

    The epochs' orders, one behind the other, form one endless sequence, cut into batches of equal size. So every
    example comes exactly once in an epoch, nothing is dropped, shapes are static, and the batch at the seam of two
    epochs is completed from the next one. An epoch's order depends on (seed, epoch) alone, not on the batch size.

    Raises ValueError unless 1 <= batch_size <= num_examples.
    """

    num_examples: int
    batch_size: int
    seed: int
    _orders: dict[int, np.ndarray] = field(default_factory=dict, init=False, repr=False, compare=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.num_examples < 1:
            raise ValueError("there are no examples to train on")
        if not 1 <= self.batch_size <= self.num_examples:
            raise ValueError(
                f"batch_size must be between 1 and the number of training examples, {self.num_examples}, "
                f"not {self.batch_size}"
            )
        if self.seed < 0:
            raise ValueError(f"seed must not be negative, but is {self.seed}")

    def __getitem__(self, index: int) -> np.ndarray:
        """Rows of batch `index` (int64 [batch_size])."""
        if index < 0:
            raise IndexError(f"batch index must not be negative, but is {index}")
        epoch, begin = divmod(index * self.batch_size, self.num_examples)
        rows = self._order(epoch)[begin : begin + self.batch_size]
        missing = self.batch_size - len(rows)
        return np.concatenate([rows, self._order(epoch + 1)[:missing]]) if missing else rows.copy()

    def _order(self, epoch: int) -> np.ndarray:
        with self._lock:  # else every reading thread would make the same permutation at a seam
            if epoch not in self._orders:
                # Two orders serve all reading threads around a seam; older ones go, to free their memory.
                while len(self._orders) >= 2:
                    del self._orders[min(self._orders)]
                # RandomState's algorithms are frozen by NumPy's policy (NEP 19), Generator's are not: an upgrade must
                # not change the order under a run that is resumed.
                generator = np.random.RandomState(np.random.PCG64([self.seed, epoch]))
                self._orders[epoch] = generator.permutation(self.num_examples)
            return self._orders[epoch]


@dataclass(frozen=True)
class EvalPlan:
    """Every example exactly once, in file order; row -1, at the end of the last batch, stands for no example."""

    num_examples: int
    batch_size: int

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {self.batch_size}")

    def __len__(self) -> int:
        return -(-self.num_examples // self.batch_size)

    def __getitem__(self, index: int) -> np.ndarray:
        """Rows of batch `index` (int64 [batch_size]). Raises IndexError beyond the last batch."""
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index} of {len(self)}")
        rows = np.arange(index * self.batch_size, (index + 1) * self.batch_size)
        return np.where(rows < self.num_examples, rows, -1)
