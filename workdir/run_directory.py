"""A run's directory: what is in it, and to which config it belongs. No run that has begun is deleted or overwritten.

A run has begun when its first step is about to be made: only then is anything written, `config.json` first, which binds
the directory to it.
"""

import contextlib
import dataclasses
import json
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from experiments.experiment import with_current_names
from workdir.atomic_write import write_atomically

_WRITTEN = ["config.json", "data.json", "data_spec.json", "metrics.jsonl"]
_WRITTEN += ["tokenizers", "tensorboard", "checkpoints", "figures"]
"""What training writes before its result."""


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
        """The result of a finished run, or None.

        Raises:
            RunDirectoryError: `result.json` is damaged.
        """
        path = self.path / "result.json"
        if not path.exists():
            return None
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise self.damaged_result(error) from error
        if not isinstance(result, dict):
            raise self.damaged_result("it is no JSON object")
        return result

    def damaged_result(self, why: object) -> RunDirectoryError:
        """What to raise where `result.json` is not what `finish` wrote."""
        path = self.path / "result.json"
        return RunDirectoryError(f"{path} is damaged ({why}): remove it, and the end of the run is reported anew")

    def finish(self, result: dict[str, Any]) -> None:
        """Write `result.json`, which marks the run as finished. NaN and infinity become null."""
        self.write("result.json", result)

    @property
    def has_progress(self) -> bool:
        """Whether a step of the run has left something: a checkpoint, or a row of the curves."""
        saved = self.checkpoints.is_dir() and any(path.name[:1].isdecimal() for path in self._saves())
        return saved or (self.metrics.exists() and self.metrics.stat().st_size > 0)

    @contextlib.contextmanager
    def beginning(self, config: dict[str, Any]) -> Iterator[Callable[[], None]]:
        """Around a run, from before its first step. Gives the function that begins it, which writes `config.json`.

        Where the run ends by an exception before a step has left anything, a batch too large for the memory, say, all
        that it wrote is taken back: then whoever mistyped an option can simply correct it. A run that was there before
        stays as it is.

        The function raises RunDirectoryError if another process has meanwhile begun with another config.
        """
        made = False

        def begin() -> None:
            nonlocal made
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                made = not self.config.exists() and write_atomically(self.config, _json(config), overwrite=False)
            except OSError as error:
                raise RunDirectoryError(
                    f"--workdir {self.path} cannot be written: {error.strerror or error}"
                ) from error
            _check_config(self, config)

        try:
            yield begin
        except BaseException:
            if made and not self.has_progress:
                for path in (self.path / name for name in _WRITTEN):
                    if path.is_dir():
                        shutil.rmtree(path, ignore_errors=True)
                    else:
                        path.unlink(missing_ok=True)
            raise

    def _saves(self) -> list[Path]:
        """Whole or not, but not those that were being written."""
        return [path for path in self.checkpoints.iterdir() if "tmp" not in path.name]

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Write the file `name` as JSON, whole or not at all, over an older one. NaN, infinity become null."""
        write_atomically(self.path / name, _json(_without_nonfinite(value)))


def open_run(workdir: str | Path, config: dict[str, Any]) -> RunDirectory:
    """The directory of the run of `config`: made and left empty if it is new, the same run's if it was there.

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
    except OSError as error:
        raise RunDirectoryError(f"--workdir {run.path} cannot be made: {error.strerror or error}") from error
    # In this order, since config.json is the first file that another process makes here.
    try:
        strangers = [path.name for path in run.path.iterdir() if not path.name.startswith(run.config.name)]
    except OSError as error:
        raise RunDirectoryError(f"--workdir {run.path} cannot be read: {error.strerror or error}") from error
    if run.config.exists():
        _check_config(run, config)
    elif strangers:
        raise RunDirectoryError(
            f"{run.path} holds {sorted(strangers)[0]} but no {run.config.name}, so it is not a run's directory: "
            "choose another --workdir"
        )
    return run


def _check_config(run: RunDirectory, config: dict[str, Any]) -> None:
    """Raises RunDirectoryError unless the directory is that of the run of `config`."""
    try:
        saved = json.loads(run.config.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunDirectoryError(f"{run.config} is not readable JSON: choose another --workdir") from error
    differences = _differences(
        with_current_names(saved) if isinstance(saved, dict) else saved, json.loads(json.dumps(config))
    )
    if differences:
        more = f", and {len(differences) - 3} more" if len(differences) > 3 else ""
        # Another process may just have begun, so this one cannot tell that the directory is free.
        free = "" if run.has_progress else "it has kept no step yet; if nobody is training it, remove it, or "
        raise RunDirectoryError(
            f"{run.path} is the directory of another run: {', '.join(differences[:3])}{more}; {free}"
            "choose another --workdir"
        )


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


def _json(value: Any) -> str:
    """Exact floats, keys in order. Raises ValueError for NaN and infinity."""
    return json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _without_nonfinite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nonfinite(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nonfinite(child) for child in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
