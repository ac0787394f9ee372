"""Asynchronous logging of training metrics: the loop never waits for the device."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol

import jax

from training.finite import check_finite, check_flags
from training.loss import Metrics
from training.metrics import MetricAccumulator
from training.progress import Progress


class Writer(Protocol):
    """The interface of `workdir.metric_writer.MetricWriter` that logging needs."""

    def write(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Write one row."""


class MetricLogger:
    """Collects the metrics of single steps and writes one row of the training curve for every `every` of them.

    A row has the means over its window, and the learning rate of its last step, whose number it bears.

    The metrics are device arrays of computations that may still run. A window is fetched when the step after it has
    been dispatched, so the device is never idle for it. `flush` fetches what is left, before an evaluation or a save;
    what it got of a window that is still open is saved with the state, so a resumed run writes the same rows.

    Args:
      window: `pending`, as the checkpoint of a resumed run has it.
    """

    def __init__(self, writer: Writer, progress: Progress, every: int, window: Mapping[str, Any] | None = None):
        self._writer, self._progress, self._every = writer, progress, every
        self._totals = MetricAccumulator(**(window or {}))
        self._waiting: list[tuple[int, Metrics]] = []

    def add(self, step: int, metrics: Metrics) -> None:
        """Add the metrics of step `step`, just dispatched; fetch those before it, if they close a window.

        Raises:
          NonFiniteError: a fetched loss or gradient norm is not a finite number, or the state after that step not
            finite (see `training.finite`); names the step.
        """
        if self._waiting and self._waiting[-1][0] % self._every == 0:
            self.flush()
        self._waiting.append((step, metrics))

    def flush(self, last: bool = False) -> None:
        """Wait for all steps so far; write the windows that they close, and the open one if `last`.

        Raises as `add` does.
        """
        waiting, self._waiting = self._waiting, []
        for step, metrics in zip([step for step, _ in waiting], jax.device_get([m for _, m in waiting]), strict=True):
            check_finite({name: metrics[name][0] for name in ("loss", "gradient_norm")}, f"at step {step}")
            metrics = check_flags(metrics, step)
            self._totals.add(metrics)
            if step % self._every == 0 or (last and step == waiting[-1][0]):
                self._write(step, metrics)

    @property
    def pending(self) -> dict[str, Any]:
        """Return sums and counts of finished steps that no row has yet, as JSON can hold them."""
        return dataclasses.asdict(self._totals)

    def _write(self, step: int, metrics: Metrics) -> None:
        totals, self._totals = self._totals, MetricAccumulator()
        means, tokens = totals.means(), totals.counts["loss"]
        if "learning_rate" in metrics:
            rate, count = metrics["learning_rate"]
            means["learning_rate"] = float(rate) / int(count)
        self._progress.update(step, loss=means["loss"], tokens=tokens)
        if self._progress.tokens_per_second is not None:
            means["tokens_per_second"] = self._progress.tokens_per_second
        self._writer.write(step, "train", means | {"tokens": tokens})
