"""Arithmetic of metrics: pairs (sum, count), added on the host and divided once; perplexity."""

import dataclasses
import math
import operator
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass
class MetricAccumulator:
    """Running totals of metrics that come as pairs (sum, count).

    Sums are added in float64 and counts as integers, so the means do not depend on how the examples were
    split into batches. Two plain dicts: `dataclasses.asdict(totals)` is JSON, and `MetricAccumulator(**that)` continues
    from it.
    """

    sums: dict[str, float] = dataclasses.field(default_factory=dict)
    counts: dict[str, int] = dataclasses.field(default_factory=dict)

    def add(self, metrics: Mapping[str, tuple[Any, Any]]) -> None:
        """Add one batch's pairs. Waits for the device when it is handed device arrays.

        Raises:
            TypeError: a count is not an integer.
        """
        for name, (total, count) in metrics.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(total)
            self.counts[name] = self.counts.get(name, 0) + operator.index(count)

    def means(self) -> dict[str, float]:
        """Return sum / count by name; 0.0 where nothing was counted (`counts` tells)."""
        return {name: total / self.counts[name] if self.counts[name] else 0.0 for name, total in self.sums.items()}


def perplexity(loss: float) -> float:
    """Return exp(loss), the loss in nats per token; infinity where a float cannot hold it."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf
