"""Loss and accuracy over a whole split, the same for every batch size."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax

from training.hyperparameters import Hyperparameters
from training.loss import Batch, Loss, Metrics
from training.metrics import MetricAccumulator

EvalStep = Callable[[Any, Batch], Metrics]


def make_eval_step(loss: Loss) -> EvalStep:
    """Return `eval_step(params, batch) -> metrics`: the loss without dropout and without label smoothing."""
    hyper: Hyperparameters = {}
    return jax.jit(lambda params, batch: loss(params, batch, None, hyper))


def check_metric(name: str, metrics: Iterable[str]) -> None:
    """Raises ValueError unless `name`, by which the best checkpoint is kept, is one of the validation `metrics`."""
    if name not in (names := sorted(metrics)):
        raise ValueError(f"train.best_metric={name} is no validation metric of this experiment: {', '.join(names)}")


def evaluate(eval_step: EvalStep, params: Any, batches: Iterable[Batch]) -> dict[str, float]:
    """Compute metric means over all real tokens (or rows) of `batches`: sums and counts added, divided once.

    Batches without end are for training: `batches` must hold each example once. Rows with all weights False count
    nothing.
    """
    totals, waiting = MetricAccumulator(), None
    for batch in batches:
        metrics = eval_step(params, batch)
        if waiting is not None:
            totals.add(jax.device_get(waiting))  # of the batch before, while the device works on this one
        waiting = metrics
    if waiting is not None:
        totals.add(jax.device_get(waiting))
    return totals.means()
