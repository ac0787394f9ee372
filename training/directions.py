"""Directions of validation metrics, higher or lower is better: declared with the metric, never guessed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

Direction = Literal["min", "max"]
"""min: the lower the better, as a loss is; max: the higher, as an accuracy is."""

LOSS_METRICS: dict[str, Direction] = {"loss": "min", "accuracy": "max", "exact_match": "max"}
"""What `training.loss.token_loss` measures. A loss with further metrics declares them in its experiment's `metrics`."""


def check_directions(metrics: Mapping[str, str]) -> None:
    """Raises ValueError unless each value of `metrics`, by name, is a direction."""
    for name, direction in metrics.items():
        if direction not in get_args(Direction):
            raise ValueError(f"metrics[{name!r}] must be 'min' or 'max', which way it is better, got {direction!r}")


def check_declared(name: str, metrics: Mapping[str, Direction]) -> None:
    """Raises ValueError unless `name`, by which the best checkpoint is kept, is declared; names those that are."""
    if name not in metrics:
        raise ValueError(
            f"train.best_metric={name} is not declared, so which way it is better is not known: the experiment's "
            f"metrics are {', '.join(sorted(metrics))}; a metric of your own is declared by metrics= in the experiment"
        )
