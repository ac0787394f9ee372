"""Several sources as one: how a mixture is written, and whose turn it is at a batch.

Sources are mixed by batches: each batch is of one source. In any number of batches from the first on, a source has its
share of them, up to rounding. Each has epochs and orders of its own, so a small one comes round more often.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

import numpy as np

from data.plan import TrainPlan
from data.sources.grammar import KINDS

Source = TypeVar("Source")

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_BEGINNING = rf"\s*(?:(?:{'|'.join(KINDS)}):|\w+\s*(?:[=,]|$)|$)"
"""What may follow the comma: KIND: or a bare name."""
_PART = re.compile(rf"(.*?)=\s*({_NUMBER})\s*(?:$|,(?={_BEGINNING}))", re.DOTALL)


def parse_mixture(text: str) -> list[tuple[str, Fraction]]:
    """`A=0.7,B=0.3` as [("A", 7/10), ("B", 3/10)]; anything without a weight at its end as the one source it is.

    Weights are positive numbers, and are divided by their sum; one source alone has none. A path may have commas and
    equals signs: sources are divided only where `=NUMBER,` is followed by what begins one, `KIND:` or a bare name (so a
    file `lr=1,dates` has to be renamed). Raises ValueError, in one line, for a weight that is not positive, a source
    twice or without a name, and a last one without a weight.
    """
    parts, at = [], 0
    while match := _PART.match(text, at):
        parts.append((match[1].strip(), Fraction(match[2])))
        at = match.end()
    if not parts or (len(parts) == 1 and at == len(text) and not text.endswith(",")):
        return [(text, Fraction(1))]
    if at < len(text) or text.endswith(","):
        raise ValueError(f"mixture {text!r}: {text[at:]!r} has no weight; wanted SOURCE=WEIGHT,SOURCE=WEIGHT")
    names = [name for name, _ in parts]
    for name, weight in parts:
        if not name:
            raise ValueError(f"mixture {text!r}: a weight without a source; wanted SOURCE=WEIGHT,SOURCE=WEIGHT")
        if weight <= 0:
            raise ValueError(f"mixture {text!r}: the weight of {name} must be positive, not {float(weight):g}")
        if names.count(name) > 1:
            raise ValueError(f"mixture {text!r}: {name} is there {names.count(name)} times")
    total = sum(weight for _, weight in parts)
    return [(name, weight / total) for name, weight in parts]


def resolve_mixture(text: str, resolve: Callable[[str], Source]) -> list[tuple[Source, Fraction]]:
    """`parse_mixture`, with what `resolve` makes of each source's name."""
    return [(resolve(name), weight) for name, weight in parse_mixture(text)]


def dataset_at(index: int, weights: Sequence[Fraction]) -> tuple[int, int]:
    """Whose turn `index` is, and how many turns that source has had before.

    The first source has round(n · weight) of the first n turns; the second its share of the others, rounded likewise;
    and so on. So the answer needs no memory of earlier turns, and no rounding error ever builds up.
    """
    left = Fraction(1)
    for source, weight in enumerate(weights[:-1]):
        share = weight / left
        before, after = (math.floor(n * share + Fraction(1, 2)) for n in (index, index + 1))
        if after > before:
            return source, before
        index, left = index - before, left - weight
    return len(weights) - 1, index


@dataclass(frozen=True)
class MixturePlan:
    """As `TrainPlan`, a pure function of the global batch index, over the examples of several sources."""

    weights: tuple[Fraction, ...]
    """Shares of the batches; their sum is 1."""
    plans: tuple[TrainPlan, ...]
    """One for each source, over its own examples."""
    examples: tuple[np.ndarray, ...]
    """int [N] for each source: the numbers that its examples have among all."""

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        """Examples of batch `index` (int64 [rows of its bucket], -1: none), and its bucket."""
        if index < 0:
            raise IndexError(f"batch index must not be negative, but is {index}")
        source, number = dataset_at(index, self.weights)
        rows, bucket = self.plans[source][number]
        return np.where(rows < 0, -1, self.examples[source][rows]), bucket
