"""What the loop writes down while it trains, without ever making it wait for the device."""

from __future__ import annotations

import math

import jax

from training.loss import Metrics
from training.metrics import MetricWriter, Totals
from training.progress import Progress


class NonFiniteError(RuntimeError):
    """The loss or the gradient is NaN or infinite: nothing that follows would mean anything."""


class StepLog:
    """Collects the metrics of single steps and writes one row of the training curve for every window of them.

    The metrics are device arrays of computations that may still run. A window is fetched when the step after it has
    been dispatched, so the device is never idle for it; `flush` fetches what is left before an evaluation or a save.
    """

    def __init__(self, writer: MetricWriter, progress: Progress, every: int):
        self._writer, self._progress, self._every = writer, progress, every
        self._open: list[Metrics] = []
        self._closed: tuple[int, list[Metrics]] | None = None
        self._last = 0

    def add(self, step: int, metrics: Metrics) -> None:
        """Take the metrics of step `step`, just dispatched; fetch the window before it, if one was closed.

        Raises:
          NonFiniteError: a fetched loss or gradient norm is not a finite number; names the step.
        """
        self._write()
        self._open.append(metrics)
        self._last = step
        if step % self._every == 0:
            self._closed, self._open = (step, self._open), []

    def flush(self) -> None:
        """Wait for all steps so far, and write them; raises as `add` does."""
        self._write()
        if self._open:
            self._closed, self._open = (self._last, self._open), []
            self._write()

    def _write(self) -> None:
        if self._closed is None:
            return
        (step, window), self._closed = self._closed, None
        totals = Totals()
        for index, metrics in enumerate(jax.device_get(window)):
            for name in ("loss", "gradient_norm"):
                value = float(metrics[name][0])
                if not math.isfinite(value):
                    raise NonFiniteError(
                        f"the {name.replace('_', ' ')} at step {step - len(window) + 1 + index} is {value}"
                    )
            totals.add(metrics)
        means, tokens = totals.means(), totals.counts["loss"]
        self._progress.update(step, loss=means["loss"], tokens=tokens)
        if self._progress.tokens_per_second is not None:
            means["tokens_per_second"] = self._progress.tokens_per_second
        self._writer.write(step, "train", means | {"tokens": tokens})
