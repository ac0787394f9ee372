"""Batches of sentences of like length, each padded to one of a few widths: less padding, few programs to compile."""

import threading
from dataclasses import dataclass, field

import numpy as np

from data.plan import TrainPlan

WINDOW = 32
"""Batches that are sorted into buckets together: the fewer, the more of them straddle two and get the wider shape."""


def bucket_widths(lengths: np.ndarray, count: int) -> tuple[int, ...]:
    """The at most `count` widths, ascending, that need the fewest padded tokens in all; the last is the longest length.

    Exact, by dynamic programming over the lengths that occur: with k widths, the best last-but-one is tried for each.
    """
    values, numbers = np.unique(lengths, return_counts=True)
    upto = np.concatenate([[0], np.cumsum(numbers)])
    cost, chosen = upto[1:] * values.astype(np.float64), []
    for _ in range(count - 1):
        # cost[j] for the sentences up to values[j], and values[i] tokens for each one after them, up to values[i].
        total = cost[:, None] + (upto[None, 1:] - upto[1:, None]) * values[None, :].astype(np.float64)
        total[np.tril_indices(len(values))] = np.inf
        best = total.argmin(axis=0)
        better = total.min(axis=0) < cost
        chosen.append(np.where(better, best, -1))
        cost = np.minimum(cost, total.min(axis=0))
    at, widths = len(values) - 1, [int(values[-1])]
    for step in reversed(chosen):
        if step[at] >= 0:
            at = int(step[at])
            widths.append(int(values[at]))
    return tuple(reversed(widths))


@dataclass
class BucketPlan:
    """As `TrainPlan`, a pure function of (lengths, seed) and the global batch index; it gives a width as well.

    The endless sequence of the epochs' orders is taken in windows of 32 batches. A window's sentences are sorted by the
    narrowest width that holds them (and stay in random order otherwise), cut into batches of equal size, and the
    batches shuffled. So every example still comes as often as any other, nothing is dropped, and a batch has one of the
    shapes (batch_size, width). A window over the seam of two epochs mixes the end of one with the start of the next.
    """

    lengths: np.ndarray
    """int [N], each at most the last of `widths`."""
    widths: tuple[int, ...]
    """Ascending."""
    batch_size: int
    seed: int
    _windows: dict[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._plan = TrainPlan(len(self.lengths), self.batch_size, self.seed)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        """Rows of batch `index` (int64 [batch_size]), and the width that holds them."""
        if len(self.widths) == 1:  # nothing to sort: the epochs' orders as they are
            return self._plan[index], self.widths[0]
        window, batch = divmod(index, WINDOW)
        with self._lock:  # else every reading thread would sort the same window
            if window not in self._windows:
                while len(self._windows) >= 2:
                    del self._windows[min(self._windows)]
                self._windows[window] = self._sorted(window)
            rows, widths = self._windows[window]
        return rows[batch], int(widths[batch])

    def _sorted(self, window: int) -> tuple[np.ndarray, np.ndarray]:
        drawn = np.concatenate([self._plan[window * WINDOW + batch] for batch in range(WINDOW)])
        bucket = np.searchsorted(self.widths, self.lengths[drawn])
        batches = drawn[np.argsort(bucket, kind="stable")].reshape(WINDOW, self.batch_size)
        # Frozen by NumPy's policy, as in `TrainPlan`; the third number keeps the streams apart.
        generator = np.random.RandomState(np.random.PCG64([self.seed, window, WINDOW]))
        batches = batches[generator.permutation(WINDOW)]
        widest = np.searchsorted(self.widths, self.lengths[batches]).max(axis=1)
        return batches, np.asarray(self.widths)[widest]
