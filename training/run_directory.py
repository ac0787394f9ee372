"""A run's directory: what is in it, and to which config it belongs. No run that has begun is deleted or overwritten."""

import contextlib
import dataclasses
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class RunDirectoryError(ValueError):
    """The directory cannot be used for this run; the message says why and what to do."""


@dataclasses.dataclass(frozen=True)
class RunDirectory:
    """The directory of one run, as `open_run` returns it."""

    path: Path
    """The directory itself, what --workdir names."""

    @property
    def config(self) -> Path:
        """`config.json`: the resolved config, which alone suffices to run it again."""
        return self.path / "config.json"

    @property
    def checkpoints(self) -> Path:
        """Directory of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def figures(self) -> Path:
        """Directory of the figures."""
        return self.path / "figures"

    @property
    def tokenizers(self) -> Path:
        """Directory of the tokenizers the run was trained with."""
        return self.path / "tokenizers"

    @property
    def metrics(self) -> Path:
        """`metrics.jsonl`: the curves."""
        return self.path / "metrics.jsonl"

    @property
    def finished(self) -> dict[str, Any] | None:
        """The result of a finished run, or None."""
        path = self.path / "result.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def finish(self, result: dict[str, Any]) -> None:
        """Write `result.json`, which marks the run as finished. NaN and infinity become null."""
        self.write("result.json", result)

    @contextlib.contextmanager
    def beginning(self) -> Iterator[None]:
        """Around what a run takes to begin. Where that fails, another config may have a directory with nothing in it.

        Only a `config.json` that stands alone is taken back; then whoever mistyped a source can simply correct it.
        """
        try:
            yield
        except BaseException:
            if [path.name for path in self.path.iterdir()] == [self.config.name]:
                self.config.unlink()
            raise

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Write the file `name` as JSON, whole or not at all, over an older one. NaN, infinity become null."""
        path = self.path / name
        temporary = _write_temporary(path, _without_nonfinite(value))
        os.replace(temporary, path)


def open_run(workdir: str | Path, config: dict[str, Any]) -> RunDirectory:
    """The directory of the run of `config`: made if it is new, the same run's if it was there.

    Processes that open it at the same time agree on one config.

    Args:
        workdir: path of the directory.
        config: nested dict of what JSON can hold; floats come back as the same bits.

    Raises:
        RunDirectoryError: `workdir` belongs to another config, or holds files but no config.
        ValueError: the config holds NaN or infinity, which JSON does not have.
    """
    run = RunDirectory(Path(workdir))
    for key, value in _flat(config).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{key} is {value}: a config holds finite numbers only")
    try:
        run.path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise RunDirectoryError(f"{run.path} is not a directory: choose another --workdir") from error
    # In this order, since config.json is the first file that another process makes here.
    strangers = [path.name for path in run.path.iterdir() if not path.name.startswith(run.config.name)]
    if not run.config.exists():
        if strangers:
            raise RunDirectoryError(
                f"{run.path} holds {sorted(strangers)[0]} but no {run.config.name}, so it is not a run's directory: "
                "choose another --workdir"
            )
        _create(run.config, config)
    try:
        saved = json.loads(run.config.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunDirectoryError(f"{run.config} is not readable JSON: choose another --workdir") from error
    differences = _differences(saved, json.loads(json.dumps(config)))
    if differences:
        more = f", and {len(differences) - 3} more" if len(differences) > 3 else ""
        raise RunDirectoryError(
            f"{run.path} is the directory of another run: {', '.join(differences[:3])}{more}; choose another --workdir"
        )
    return run


def _differences(saved: Any, wanted: Any) -> list[str]:
    saved, wanted = _flat(saved), _flat(wanted)

    def text(config: dict[str, Any], key: str) -> str:
        return json.dumps(config[key], ensure_ascii=False) if key in config else "absent"

    return [
        f"{key} is {text(saved, key)} there and {text(wanted, key)} here"
        for key in sorted({*saved, *wanted})
        if text(saved, key) != text(wanted, key)
    ]


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """{"optimizer.peak_lr": 0.001, ...}."""
    if not isinstance(value, dict) or not value:
        return {prefix: value}
    leaves = {}
    for key, child in value.items():
        leaves.update(_flat(child, f"{prefix}.{key}" if prefix else str(key)))
    return leaves


def _create(path: Path, value: Any) -> None:
    """Write `path` whole, unless another process was first."""
    temporary = _write_temporary(path, value)
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _write_temporary(path: Path, value: Any) -> Path:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    text = json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    temporary.write_text(text + "\n", encoding="utf-8")
    return temporary


def _without_nonfinite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nonfinite(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nonfinite(child) for child in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
