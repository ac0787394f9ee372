"""Reading and writing of `data_spec.json`: the sizes of a run's data, which a model is built from without the data."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from data.spec import DataSpec

if TYPE_CHECKING:
    from workdir.run_directory import RunDirectory

FILE_NAME = "data_spec.json"
OLD_FILE_NAME = "limits.json"
"""Its name in runs from before December 2026, with the same content."""


def save_spec(run: RunDirectory, spec: DataSpec) -> None:
    """Write `data_spec.json`, atomically."""
    run.write(FILE_NAME, dataclasses.asdict(spec))


def read_spec(run: RunDirectory) -> DataSpec:
    """Read what `save_spec` wrote.

    Raises:
      ValueError: the file is damaged, or missing: training has not begun, or is of a version that wrote none.
    """
    path = run.path / FILE_NAME
    path = path if path.exists() else run.path / OLD_FILE_NAME
    if not path.exists():
        raise ValueError(f"{run.path} has no {FILE_NAME}: its training has not begun, or is of an older version")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        shapes = {name: tuple(shape) for name, shape in record["input_shapes"].items()}
        return DataSpec(record["vocab_sizes"], shapes, tuple(record["source_widths"]), record["max_target_length"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not what training wrote: {type(error).__name__}: {error}") from error
