"""Metrics: pairs (sum, count), added on the host and divided once; `metrics.jsonl` and TensorBoard."""

import dataclasses
import json
import math
import numbers
import operator
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE_NAME = "metrics.jsonl"


@dataclasses.dataclass
class MetricAccumulator:
    """Running totals of metrics that come as pairs (sum, count).

    Sums are added in float64 and counts as integers, so the means do not depend on how the examples were
    split into batches. Two plain dicts: `dataclasses.asdict(totals)` is JSON, and `MetricAccumulator(**that)` goes on
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
        """sum / count by name; 0.0 where nothing was counted (`counts` tells)."""
        return {name: total / self.counts[name] if self.counts[name] else 0.0 for name, total in self.sums.items()}


def perplexity(loss: float) -> float:
    """exp(loss), the loss in nats per token; infinity where that is more than a float can hold."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


class MetricWriter:
    """Writes the run's curves to `workdir/metrics.jsonl` and, for TensorBoard, to `workdir/tensorboard`.

    One row is one line of strict JSON, `{"step": 100, "split": "train", "loss": 1.25, ...}`, on disk as soon as
    it is written. `step` is the number of finished steps: the train row of step k was written by the step that made it
    k, the validation row of k before the checkpoint of k. NaN and infinity, which JSON does not have, become null.

    A run that was killed leaves rows of steps after its last checkpoint, which its resumption will take again.
    So the writer takes out all rows after `start`, and a row whose (step, split) is already there is not written
    twice: the curves have no seam.

    Args:
        workdir: the run's directory.
        start: the step the run starts from: 0, or the step of the restored checkpoint.
    """

    def __init__(self, workdir: str | Path, start: int):
        from tensorboardX import SummaryWriter  # here, so that reading metrics needs no TensorBoard

        workdir = Path(workdir)
        workdir.mkdir(parents=True, exist_ok=True)
        path = workdir / FILE_NAME
        written = _rows(path)
        kept = [row for row in written if row["step"] <= start]
        self._kept = {(row["step"], row["split"]) for row in kept}
        if path.exists():
            temporary = path.with_name(f"{FILE_NAME}.{os.getpid()}.tmp")
            temporary.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
            os.replace(temporary, path)
        self._file = path.open("a", buffering=1, encoding="utf-8")
        self._tensorboard = SummaryWriter(str(workdir / "tensorboard"), purge_step=start + 1)

    def __enter__(self) -> "MetricWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Write one row.

        Args:
            step: number of finished steps.
            split: "train", "validation", ...
            values: numbers by name, on the host.
        """
        if (step, split) in self._kept:
            return
        row: dict[str, Any] = {"step": int(step), "split": split}
        for name, value in values.items():
            value = int(value) if isinstance(value, numbers.Integral) else float(value)
            row[name] = value if math.isfinite(value) else None
            if row[name] is not None:
                self._tensorboard.add_scalar(f"{split}/{name}", value, step)
        self._file.write(json.dumps(row, allow_nan=False) + "\n")

    def close(self) -> None:
        """Write out what TensorBoard still holds back and close both files."""
        self._file.close()
        self._tensorboard.close()


def read_metrics(workdir: str | Path) -> list[dict[str, Any]]:
    """The rows of a run's `metrics.jsonl` in the order they were written, null as NaN; [] where there is no file.

    A last line that a killed process left half written is not a row.

    Raises:
        ValueError: another line is not JSON; names it.
    """
    rows = _rows(Path(workdir) / FILE_NAME)
    return [{name: math.nan if value is None else value for name, value in row.items()} for row in rows]


def _rows(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    # What follows the last newline is empty, or torn.
    rows = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: not JSON: {line[:80]!r}") from error
        if not isinstance(row, dict) or not isinstance(row.get("step"), int) or "split" not in row:
            raise ValueError(f"{path}, line {number}: no row of a curve, with its step and split: {line[:80]!r}")
        rows.append(row)
    return rows
