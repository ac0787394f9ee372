"""What a run's files say of it, without its data and without JAX."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.experiment import with_current_names
from workdir.metric_writer import read_metrics
from workdir.run_directory import RunDirectory, RunDirectoryError


@dataclass(frozen=True)
class RunSummary:
    """A run that has begun."""

    path: Path
    config: dict[str, Any]
    """As `config.json` has it, options under today's names."""
    rows: list[dict[str, Any]]
    """Of `metrics.jsonl`."""
    result: dict[str, Any] | None
    """Metrics of `result.json`; None for a run that is not finished."""

    @property
    def experiment(self) -> str:
        """Name of its experiment."""
        return self.config["experiment"]

    @property
    def steps(self) -> int:
        """Steps that its curves have."""
        return max((row["step"] for row in self.rows), default=0)

    @property
    def state(self) -> str:
        """Whether it is finished, or how far it has come."""
        total = self.config.get("train", {}).get("steps")
        if self.result is not None:
            return "finished"
        return f"step {self.steps:,}" + (f" of {total:,}" if isinstance(total, int) else "")

    @property
    def validation(self) -> dict[str, float]:
        """The metrics of the last evaluation on the validation split; {} before the first."""
        rows = [row for row in self.rows if row["split"] == "validation"]
        return {name: value for name, value in rows[-1].items() if name not in ("step", "split")} if rows else {}


def summarize(path: Path) -> RunSummary:
    """Read what a run has written so far.

    Raises:
      ValueError: `path` is not the directory of a run, or a file of it is damaged; names the file.
    """
    run = RunDirectory(path)
    try:
        config = json.loads(run.config.read_text(encoding="utf-8"))
    except OSError:
        raise RunDirectoryError(f"{path} is not the directory of a run: it has no {run.config.name}") from None
    except ValueError as error:
        raise RunDirectoryError(f"{run.config} is damaged: {error}") from None
    if not isinstance(config, dict) or not isinstance(config.get("experiment"), str):
        raise RunDirectoryError(f"{run.config} is not the config of a run: it names no experiment")
    finished = run.finished
    metrics = None if finished is None else finished.get("metrics", {})
    return RunSummary(path, with_current_names(config), read_metrics(path), metrics)


def text_table(header: list[str], rows: list[list[str]]) -> str:
    """Align the cells of a table in columns, two spaces apart."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in [header, *rows]]
    return "\n".join("  ".join(line).rstrip() for line in lines)
