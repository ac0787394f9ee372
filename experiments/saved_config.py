"""Configs as JSON and back: what a run directory keeps, and what it takes to run it again."""

from __future__ import annotations

import dataclasses
import difflib
import json
from pathlib import Path
from typing import Any

from experiments.experiment import Experiment
from experiments.registry import load_experiment

OLD_NAMES = {
    ("train", "accumulation"): "grad_accumulation_steps",
    ("train", "loss_chunk"): "logits_chunk",
    ("train", "keep_checkpoints"): "max_to_keep",
}
"""(section, option) in configs of runs from before December 2026 -> the option's name today."""


def with_current_names(record: dict[str, Any]) -> dict[str, Any]:
    """A config as JSON has it, with today's names for options that have been renamed."""
    return {
        section: {OLD_NAMES.get((section, name), name): value for name, value in options.items()}
        if isinstance(options, dict)
        else options
        for section, options in record.items()
    }


def config_record(experiment: Experiment) -> dict[str, Any]:
    """The experiment's name and resolved config as JSON can hold them; not the directory, which a copy may change."""
    record = {"experiment": experiment.name} | dataclasses.asdict(experiment.config)
    del record["workdir"]
    return record


def read_experiment(path: Path) -> tuple[Experiment, str]:
    """The experiment that a run's `config.json` describes, its card's docstring; to be run in the same directory.

    Raises:
      ValueError: no such file, not JSON, or a key that its card does not know; names the near ones.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(record, dict) or not isinstance(record.get("experiment"), str):
        raise ValueError(f"{path} is not the config of a run: it names no experiment")
    experiment, doc = load_experiment(record.pop("experiment"))
    config = _fill(experiment.config, with_current_names(record), str(path), "")
    return dataclasses.replace(experiment, config=dataclasses.replace(config, workdir=str(path.parent))), doc


def _fill(config: Any, record: dict[str, Any], path: str, prefix: str) -> Any:
    """`config` with the values of `record`; every key must exist."""
    names = [field.name for field in dataclasses.fields(config)]
    values = {}
    for key, value in record.items():
        if key not in names:
            near = difflib.get_close_matches(key, names, n=3, cutoff=0.4)
            hint = f"; perhaps you meant {' or '.join(prefix + name for name in near)}" if near else ""
            raise ValueError(f"{path}: unknown key {prefix}{key}{hint}")
        old = getattr(config, key)
        if dataclasses.is_dataclass(old):
            if not isinstance(value, dict):
                raise ValueError(f"{path}: {prefix}{key} must be a section of options, got {value!r}")
            value = _fill(old, value, path, f"{prefix}{key}.")
        elif isinstance(old, float) and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        elif old is not None and value is not None and type(value) is not type(old):
            raise ValueError(f"{path}: {prefix}{key} must be of type {type(old).__name__}, got {value!r}")
        values[key] = value
    return dataclasses.replace(config, **values)
