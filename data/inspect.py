"""Inspection of data before training: sizes, lengths, examples, batches.

    python -m data.inspect tsv:corpus/kor --data.normalization NFD
    python -m data.inspect parallel:corpus/multi30k:en-de --data.tokenizer bpe --data.shared_vocabulary True

The options are those of train.py, with the same meaning. After what reading the data has to say come the examples of
each split, lengths, what the vocabulary covers, what the limits touch, padding, and the first batches as text.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from analysis.lengths import plot_lengths
from cli.options import parse_options
from cli.terminal import exit_on_error, fail, run_script
from data.config import DataConfig
from data.home import expand_home
from data.loading import PairData, TextData, load
from data.seeds import check_seed
from data.tokenizers.base import EOS, UNK

_BINS, _BAR = 12, 40


@dataclass(frozen=True)
class Inspection:
    """Options of `python -m data.inspect`."""

    data: DataConfig
    picture: str = "lengths.png"
    """File for the picture of the lengths; empty: none."""
    batches: int = 2
    """First training batches that are shown as text."""
    rows: int = 4
    """Rows of each that are shown."""
    seed: int = 0
    """Seed of the order, as train.seed."""

    def __post_init__(self) -> None:
        check_seed(self.seed)


def inspect(options: Inspection) -> list[str]:
    """Return the lines of the report; writes the picture. Raises ValueError as `data.loading.load`."""
    data = load(options.data)
    lines = [
        *_counts(data),
        *_lengths(data),
        *_vocabulary(data),
        *_limits(data),
        *_padding(data),
        *_batches(data, options),
    ]
    if options.picture:
        picture = expand_home(options.picture, "--picture")
        try:
            plot_lengths({side: train.lengths for side, train in data.encoded["train"].items()}, picture)
        except OSError as error:
            raise ValueError(f"--picture {picture} cannot be written: {error.strerror or error}") from error
        lines.append(f"picture of the lengths: {options.picture}")
    return lines


def _counts(data: PairData | TextData) -> Iterator[str]:
    yield "examples"
    for split, of_side in data.encoded.items():
        tokens = ", ".join(f"{len(sequences.ids):,} tokens of {side}" for side, sequences in of_side.items())
        yield f"  {split:<20} {sum(data.sizes[split]):>12,}   {tokens}"


def _lengths(data: PairData | TextData) -> Iterator[str]:
    for side, train in data.encoded["train"].items():
        lengths = train.lengths
        low, median, most, high = (int(x) for x in np.quantile(lengths, (0, 0.5, 0.99, 1), method="lower"))
        yield (
            f"lengths of {side} in training, end of sentence counted: {low} to {high}, median {median}, "
            f"99% at most {most}, mean {lengths.mean():.1f}"
        )
        bins = histogram(lengths)
        highest = max(count for *_, count in bins)
        for first, last, count in bins:
            yield f"  {first:>7}-{last:<7} {count:>10,}  {'#' * -(-count * _BAR // highest)}"


def histogram(lengths: np.ndarray) -> list[tuple[int, int, int]]:
    """Count `lengths` (int [N]) in at most 12 bins of equal width: (first, last, count) of each."""
    low, high = int(lengths.min()), int(lengths.max())
    width = -(-(high - low + 1) // _BINS)
    counts = np.bincount((lengths - low) // width)
    return [(low + n * width, low + (n + 1) * width - 1, int(count)) for n, count in enumerate(counts)]


def _vocabulary(data: PairData | TextData) -> Iterator[str]:
    for side, train in data.encoded["train"].items():
        size = data.tokenizers[side].vocab_size
        seen = np.bincount(train.ids, minlength=size) > 0
        used = np.count_nonzero(seen[UNK + 1 :])
        yield f"vocabulary of {side}: {size:,} ids, special ones counted; {used:,} occur in training"
        for split, of_side in data.encoded.items():
            if split != "train":
                ids = of_side[side].ids[of_side[side].ids != EOS]
                unknown, new = np.count_nonzero(ids == UNK), np.count_nonzero(~seen[ids] & (ids != UNK))
                known = 1 - (unknown + new) / max(len(ids), 1)
                yield f"  {split:<20} {known:.3%} covered: {unknown:,} tokens unknown, {new:,} not in training"


def _limits(data: PairData | TextData) -> Iterator[str]:
    yield "left out or cut"
    for dataset in data.datasets:
        yield f"  when prepared: {(dataset.info.metadata or {}).get('report') or 'nothing'} ({dataset.name})"
    if not isinstance(data, PairData):
        yield f"  nothing else: text is cut into rows of {data.config.max_target_length:,} tokens, and none is lost"
        return
    limits = {"source": data.max_source_length, "target": data.max_target_length}
    for split, of_side in data.encoded.items():
        longer = {side: of_side[side].lengths > limit for side, limit in limits.items()}
        either = np.count_nonzero(longer["source"] | longer["target"])
        parts = [f"{np.count_nonzero(longer[side]):,} over {limits[side]} tokens of {side}" for side in limits]
        what = "left out" if split == "train" else "cut"
        yield f"  {split:<20} {either:,} of {len(longer['source']):,} {what}: {' and '.join(parts)}"


def _padding(data: PairData | TextData) -> Iterator[str]:
    waste, tokens = data.padding()
    shapes = ", ".join("×".join(map(str, shape)) for shape in data.shapes)
    yield f"padding: {waste:.1%} of the {tokens:,} tokens in a training batch, on average; shapes: {shapes}"


def _batches(data: PairData | TextData, options: Inspection) -> Iterator[str]:
    for number, batch in enumerate(islice(data.train_batches(options.seed), options.batches)):
        yield f"batch {number}: {' and '.join('×'.join(map(str, array.shape)) for array in _ids(batch))}"
        target = "target" if isinstance(data, PairData) else "text"
        for row in range(min(options.rows, len(batch["labels"]))):
            text = repr(data.tokenizers[target].decode(batch["labels"][row]))
            if target == "target":
                text = f"{data.tokenizers['source'].decode(batch['inputs']['source'][row])!r} -> {text}"
            yield f"  {text}"


def _ids(batch: dict[str, Any]) -> list[np.ndarray]:
    """Return the arrays of ids in a batch's inputs."""
    return [batch["inputs"][name] for name in ("source", "target", "tokens") if name in batch["inputs"]]


def main() -> None:
    """Inspect the data that the command line names."""
    program, words = "python -m data.inspect", sys.argv[1:]
    if not words or words[0].startswith("-"):
        print(f"usage: {program} SOURCE [--data.option VALUE ...]   (SOURCE --help shows the options)\n\n{__doc__}")
        sys.exit(0 if words in ([], ["-h"], ["--help"]) else 2)
    default = Inspection(DataConfig(source=words[0], batch_size=32))
    try:
        options = parse_options(words[1:], default, f"{program} SOURCE", __doc__)
    except ValueError as error:
        fail(program, error)
    with exit_on_error(program):
        for line in inspect(options):
            print(line)


if __name__ == "__main__":
    run_script(main)
