"""The curves of a run: `metrics.jsonl`, and the same rows for TensorBoard and other trackers."""

import json
import math
import numbers
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from training.retry import warn, with_retries
from workdir.atomic_write import write_atomically

FILE_NAME = "metrics.jsonl"


class Tracker(Protocol):
    """Where rows go besides `metrics.jsonl`."""

    name: str

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Take one row: finite numbers by SPLIT/NAME."""

    def close(self, exit_code: int = 0) -> None:
        """Write out what is left, of a process that ends with `exit_code`."""


class MetricWriter:
    """Appends rows to the run's curves: `workdir/metrics.jsonl`, for TensorBoard `workdir/tensorboard`, and `trackers`.

    One row is one line of strict JSON, `{"step": 100, "split": "train", "loss": 1.25, ...}`, on disk as soon as
    it is written. `step` is the number of finished steps: the train row of step k was written by the step that made it
    k, the validation row of k before the checkpoint of k. NaN and infinity, which JSON does not have, become null.

    A run that was killed leaves rows of steps after its last checkpoint, which its resumption will take again.
    So the writer takes out all rows after `start`, and a row whose (step, split) is already there is not written
    twice: the curves have no seam.

    A row that cannot be written is tried again (`training.retry`). A tracker that fails gets no more rows, and a line
    on stderr says so: `metrics.jsonl` has them all.

    Args:
        workdir: the run's directory.
        start: the step the run starts from: 0, or the step of the restored checkpoint.
        trackers: are closed with the writer.
    """

    def __init__(self, workdir: str | Path, start: int, trackers: Sequence[Tracker] = ()):
        from workdir.tensorboard import TensorBoardTracker

        workdir = Path(workdir)
        workdir.mkdir(parents=True, exist_ok=True)
        self._path = workdir / FILE_NAME
        kept = [row for row in _rows(self._path) if row["step"] <= start]
        self._kept = {(row["step"], row["split"]) for row in kept}
        content = "".join(json.dumps(row) + "\n" for row in kept).encode()
        with_retries(lambda: write_atomically(self._path, content), f"{self._path} could not be written")
        self._size = len(content)
        self._trackers = [TensorBoardTracker(workdir / "tensorboard", start), *trackers]

    def __enter__(self) -> "MetricWriter":
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        code = error.code if isinstance(error, SystemExit) else 0 if error is None else 1
        self.close(code if isinstance(code, int) else 1)

    def write(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Write one row.

        Args:
            step: number of finished steps.
            split: "train", "validation", ...
            values: numbers by name, on the host.

        Raises:
            OSError: `metrics.jsonl` cannot be written, again and again.
        """
        if (step, split) in self._kept:
            return
        row: dict[str, Any] = {"step": int(step), "split": split}
        for name, value in values.items():
            value = int(value) if isinstance(value, numbers.Integral) else float(value)
            row[name] = value if math.isfinite(value) else None
        self._append((json.dumps(row, allow_nan=False) + "\n").encode())
        finite = {f"{split}/{name}": row[name] for name in values if row[name] is not None}
        for tracker in tuple(self._trackers):
            try:
                tracker.log(int(step), finite)
            except Exception as error:  # whatever a tracker's package raises must not end the run
                warn(f"{tracker.name} gets no row after step {step:,}, {self._path} has all: {error}")
                self._trackers.remove(tracker)

    def close(self, exit_code: int = 0) -> None:
        """Close the trackers, of a process that ends with `exit_code`."""
        for tracker in self._trackers:
            try:
                tracker.close(exit_code)
            except Exception as error:
                warn(f"{tracker.name} may lack the last rows, {self._path} has all: {error}")
        self._trackers = []

    def _append(self, line: bytes) -> None:
        def write() -> None:
            with self._path.open("r+b") as file:
                file.seek(self._size)  # over what a write that failed has left
                file.write(line)
                file.truncate()

        with_retries(write, f"{self._path} could not be written")
        self._size += len(line)


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
