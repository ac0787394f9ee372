"""Packing of documents into rows of one width.

A split's documents lie end to end in one stream of tokens. Whatever is longer than a row is cut into pieces of a row's
width; a row then holds one or more pieces, side by side.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Packing:
    """Places of P pieces of a token stream in R rows."""

    width: int
    """Tokens of a row."""
    begin: np.ndarray
    """int64 [P]: where the piece begins in the stream. Pieces are sorted by row, and in a row by place."""
    length: np.ndarray
    """int64 [P]: its tokens, at least 1."""
    offset: np.ndarray
    """int64 [P]: where it begins in its row."""
    first: np.ndarray
    """int64 [R + 1]: row r has the pieces first[r] to first[r + 1] - 1."""

    def __len__(self) -> int:
        return len(self.first) - 1

    def places(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Look up three things for each place in `rows` (int [B]; -1: an empty row), all int64 [B, width].

        The token's index in the stream, or -1 for padding; the number of its piece in the row, from 1 on, or 0; and its
        distance from the beginning of its piece, or 0.
        """
        first = np.where(rows < 0, 0, self.first[rows])
        count = np.where(rows < 0, 0, self.first[rows + 1] - first)
        nth = _count_up(count)
        piece = np.repeat(first, count) + nth
        length, row = self.length[piece], np.repeat(np.arange(len(rows)), count)
        within = _count_up(length)
        at = np.repeat(row * self.width + self.offset[piece], length) + within
        index = np.full(len(rows) * self.width, -1)
        segment, position = np.zeros_like(index), np.zeros_like(index)
        index[at] = np.repeat(self.begin[piece], length) + within
        segment[at] = np.repeat(nth + 1, length)
        position[at] = within
        shape = (len(rows), self.width)
        return index.reshape(shape), segment.reshape(shape), position.reshape(shape)


def pack(lengths: np.ndarray, width: int, begin: int = 0) -> Packing:
    """Pack documents of these lengths (int [N]; 0: left out) in few rows: best fit, the longest first.

    A function of the lengths alone: the same documents share a row in every epoch, which is of no consequence where
    they do not see each other. Best-fit decreasing, taking all pieces of a length at once, so that 100,000 documents
    take well under a second. No piece is ever in two rows.

    Args:
      width: tokens of a row, at least 1.
      begin: where the first document begins in the stream.
    """
    lengths = np.asarray(lengths, np.int64)
    starts = begin + np.cumsum(lengths) - lengths
    pieces = -(-lengths // width)
    before = _count_up(pieces) * width
    begins = np.repeat(starts, pieces) + before
    sizes = np.minimum(np.repeat(lengths, pieces) - before, width)

    row, offset, rows = np.empty_like(sizes), np.empty_like(sizes), 0
    by_size = np.argsort(-sizes, kind="stable")
    free: dict[int, list[np.ndarray]] = {}  # tokens left -> rows, in arrays
    spaces: list[int] = []  # the keys of `free`, ascending

    def keep(space: int, some: np.ndarray) -> None:
        if space and len(some):
            if space not in free:
                insort(spaces, space)
            free.setdefault(space, []).append(some)

    values, at = np.unique(-sizes[by_size], return_index=True)
    for size, waiting in zip((-values).tolist(), np.split(by_size, at[1:])):
        while len(waiting):
            place = bisect_left(spaces, size)
            if place == len(spaces):
                new = -(-len(waiting) // (width // size))
                space, some = width, np.arange(rows, rows + new)
                rows += new
            else:
                space = spaces.pop(place)
                some = np.concatenate(free.pop(space))
            each = space // size
            used = min(len(some), -(-len(waiting) // each))
            now, waiting = waiting[: used * each], waiting[used * each :]
            nth = np.arange(len(now))
            row[now] = some[nth // each]
            offset[now] = width - space + nth % each * size
            full = len(now) // each
            keep(space - each * size, some[:full])
            keep(space - len(now) % each * size, some[full:used])
            keep(space, some[used:])

    order = np.lexsort((offset, row))
    first = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=rows))]).astype(np.int64)
    return Packing(width, begins[order], sizes[order], offset[order], first)


def join(packings: Sequence[Packing]) -> Packing:
    """Concatenate the rows of `packings`, which have one width and one stream."""
    parts = [np.concatenate([getattr(each, name) for each in packings]) for name in ("begin", "length", "offset")]
    counts = np.concatenate([np.diff(each.first) for each in packings])
    return Packing(packings[0].width, *parts, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))


def _count_up(counts: np.ndarray) -> np.ndarray:
    """Return 0 … counts[0]−1, 0 … counts[1]−1, and so on (int64 [sum of counts])."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
