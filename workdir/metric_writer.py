"""The curves of a run: `metrics.jsonl`, and the same for TensorBoard."""

import json
import math
import numbers
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workdir.atomic_write import write_atomically

FILE_NAME = "metrics.jsonl"


class MetricWriter:
    """Appends rows to the run's curves, `workdir/metrics.jsonl` and, for TensorBoard, `workdir/tensorboard`.

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
            write_atomically(path, "".join(json.dumps(row) + "\n" for row in kept))
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
    """Read the rows of a run's `metrics.jsonl`, in the order they were written, null as NaN; [] where there is no file.

    A last line that a killed process left half written is not a row.

    Raises:
        ValueError: another line is not JSON; names it.
    """
    rows = _rows(Path(workdir) / FILE_NAME)
    return [{name: math.nan if value is None else value for name, value in row.items()} for row in rows]


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:  # not asked before: another process may remove the file, of a run that failed at once
        return []
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
