"""Which of a run's checkpoints are whole, by what Orbax leaves on disk."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

_RECORD = "_CHECKPOINT_METADATA"
_MARK = "commit_success.txt"


def checkpoint_directories(directory: Path) -> tuple[list[int], dict[int, str]]:
    """List the steps of the whole checkpoints in `directory`, ascending, and the defects of the others by step.

    A checkpoint is whole if its save was finished and no file of it is missing or empty: a save that was killed, a copy
    that was broken off. Damage within a file shows when it is read. Orbax marks what it has finished with files;
    versions before 0.12.8 did not, so marks are asked for from the first step on that has one.
    """
    wrong: dict[int, str | None] = {}
    marked = False
    for step in sorted(int(path.name) for path in _entries(directory) if _is_step(path.name)):
        path = directory / str(step)
        marked = marked or any(path.rglob(_MARK))
        wrong[step] = _defect(path, marked)
    return [step for step, why in wrong.items() if why is None], {step: why for step, why in wrong.items() if why}


def saved_metrics(path: Path) -> dict[str, float]:
    """Read the validation metrics saved with the checkpoint in the directory `path`; {} if there are none."""
    file = path / "metrics" / "metrics"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def sealed(record: dict[str, Any]) -> dict[str, Any]:
    """Return `record`, which JSON can hold, with a digest of itself."""
    return record | {"digest": _digest(record)}


def check_record(record: dict[str, Any]) -> dict[str, Any] | None:
    """Return what was `sealed`; None if it never was, as in versions before that.

    Raises:
      ValueError: it is not what was sealed.
    """
    if not {"digest", "checksums"} & record.keys():
        return None
    opened = {name: value for name, value in record.items() if name != "digest"}
    if record.get("digest") != _digest(opened):
        raise ValueError("its data are not what was saved")
    return opened


def set_aside(path: Path) -> Path:
    """Rename `path` to `path`.damaged, or the next free name like it, so that its step can be saved; the new path."""
    names = (path.with_name(f"{path.name}.damaged{number or ''}") for number in range(10**6))
    return path.rename(next(name for name in names if not name.exists()))


def _entries(directory: Path) -> list[Path]:
    return list(directory.iterdir()) if directory.is_dir() else []


def _is_step(name: str) -> bool:
    return name.isascii() and name.isdecimal() and str(int(name)) == name


def _defect(path: Path, marked: bool) -> str | None:
    """Describe what a checkpoint lacks; None if it is whole."""
    if not path.is_dir():
        return "it is no directory"
    try:
        record = json.loads((path / _RECORD).read_text(encoding="utf-8"))
        items = {"state", "data", *record["item_handlers"]}
        finished = record["commit_timestamp_nsecs"] is not None
    except OSError:
        return f"it has no {_RECORD}"
    except (ValueError, KeyError, TypeError):
        return f"its {_RECORD} is damaged"
    if not finished:
        return "its save was not finished"
    for name in sorted(items):
        if not (path / name).is_dir():
            return f"it has no {name}"
    state = path / "state"
    parts = [state, *sorted(state.glob("ocdbt.process_*"))]
    wanted = [state / "_METADATA", *(part / "manifest.ocdbt" for part in parts)]
    for folder in (path / "data", *(part / "d" for part in parts)):
        if not (files := [file for file in folder.glob("*") if file.name != _MARK]):
            return f"nothing is in its {folder.relative_to(path)}"
        wanted += files
    for file in wanted:
        if not file.is_file() or not file.stat().st_size:
            return f"its {file.relative_to(path)} is {'empty' if file.exists() else 'missing'}"
    try:
        metrics = {name: float(value) for name, value in saved_metrics(path).items()}
    except (ValueError, TypeError, AttributeError):
        return "its metrics/metrics is damaged"
    try:
        record = check_record(json.loads((path / "data" / "data.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, AttributeError):
        return "its data/data.json is damaged"
    if record is not None and _digest(record["metrics"] or {}) != _digest(metrics):
        return "its metrics/metrics is not what was saved"
    if marked:
        for folder in (path, *(path / name for name in sorted(items))):
            if not (folder / _MARK).exists():
                return f"its {(folder / _MARK).relative_to(path)} is missing"
    return None


def _digest(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
