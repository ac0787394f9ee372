"""Length buckets: sentences are padded to one of a few widths: less padding, few programs to compile.

A shape has a width for each side, source and target, and the shapes form a chain: each is at least as wide as the one
before on both sides. An example goes into the first that holds both of its sides.
"""

import numpy as np

_CANDIDATES = 1024


def bucket_widths(lengths: np.ndarray, count: int, weights: np.ndarray | None = None) -> tuple[tuple[int, ...], ...]:
    """Choose at most `count` widths that pad to the fewest tokens, all sides together; the last holds all.

    Exact, by dynamic programming over all pairs of lengths that occur, as long as there are no more than 1,024; beyond
    that over quantiles of the sides.

    Args:
      lengths: int [N, sides], N at least 1, one or two sides.
      count: at least 1.
      weights: float [N], how often each example comes, where some come more often than others.

    Returns:
      Widths (one number for each side), ascending.
    """
    lengths = np.asarray(lengths)
    sides = _candidates(lengths)
    grid = np.stack([each.ravel() for each in np.meshgrid(*sides, indexing="ij")], axis=1)  # [G, sides]
    # held[g]: examples that grid point g holds, the cumulative histogram.
    place = [np.searchsorted(side, length) for side, length in zip(sides, lengths.T)]
    held = np.zeros([len(side) for side in sides])
    np.add.at(held, tuple(place), 1.0 if weights is None else weights)
    for axis in range(held.ndim):
        held = held.cumsum(axis=axis)
    held = held.ravel()

    size = grid.sum(axis=1).astype(np.float64)
    above = np.all(grid[:, None] <= grid[None, :], axis=2)  # above[f, g]: g holds whatever f holds
    step = np.where(above, (held[None, :] - held[:, None]) * size[None, :], np.inf)
    # cost[g] of the examples that g holds, with the chain's last shape at g; chosen[k][g] the shape before it.
    cost, chosen = held * size, []
    for _ in range(count - 1):
        total = cost[:, None] + step
        best = total.argmin(axis=0)
        better = total.min(axis=0) < cost
        chosen.append(np.where(better, best, -1))
        cost = np.minimum(cost, total.min(axis=0))
    at = len(grid) - 1
    chain = [at]
    for before in reversed(chosen):
        if before[at] >= 0:
            at = int(before[at])
            chain.append(at)
    return tuple(tuple(map(int, grid[at])) for at in reversed(chain))


def find_buckets(lengths: np.ndarray, widths: tuple[tuple[int, ...], ...]) -> np.ndarray:
    """Find the first of `widths` that holds each of `lengths` (int [N, sides]): int [N].

    A side longer than the last width counts as if it were cut to that.
    """
    chain = np.asarray(widths)
    sides = [np.searchsorted(chain[:, side], lengths[:, side]) for side in range(chain.shape[1])]
    return np.minimum(np.max(sides, axis=0), len(widths) - 1)


def rows_per_bucket(
    widths: tuple[tuple[int, ...], ...], batch_size: int, tokens_per_batch: int, multiple: int
) -> tuple[int, ...]:
    """Return the rows of a batch for each of `widths`: `batch_size`, or what a budget of tokens allows.

    The budget, if it is not 0, is of the wider side, padding counted: budget // width, rounded down to a multiple of
    `multiple`, and at least `multiple`, even if that is more than the budget. `multiple` is a setting and not the
    number of devices, so that a run resumes with the same batches on another number of them.
    """
    if not tokens_per_batch:
        return (batch_size,) * len(widths)
    return tuple(max(tokens_per_batch // max(width) // multiple, 1) * multiple for width in widths)


def _candidates(lengths: np.ndarray) -> list[np.ndarray]:
    """Return for each side the lengths that occur, or as many quantiles as keep the number of combinations small."""
    sides = [np.unique(side) for side in lengths.T]
    budget = _CANDIDATES
    for left, side in zip(range(len(sides), 0, -1), sorted(range(len(sides)), key=lambda n: len(sides[n]))):
        most = int(budget ** (1 / left) + 1e-9)
        if len(sides[side]) > most:
            points = np.linspace(0, 1, most + 1)[1:]
            sides[side] = np.unique(np.quantile(lengths[:, side], points, method="higher"))
        budget //= len(sides[side])
    return sides
