"""The directory of a run: its files, and the config that it belongs to.

Nothing is written before the first training step; then `config.json` is the first file, and the directory belongs to
that config. No run that has begun is deleted or overwritten. It may be resumed with more steps, and with other options
of those that change nothing learned.
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

RESULT = "result.json"
"""The file that a finished run has."""
STEPS = "train.steps"
"""The option that may be raised: a run, finished or not, is trained longer."""
CHANGEABLE = ("log_every", "evaluate_every", "save_every", "max_to_keep", "keep_every", "report", "track")
CHANGEABLE += ("watchdog_minutes",)
"""Options of training that change nothing that is learned, so that a resumed run may have others."""
_WRITTEN = ["config.json", "data.json", "data_spec.json", "SHA256SUMS", "metrics.jsonl"]
_WRITTEN += ["tokenizers", "tensorboard", "wandb", "wandb_id", "checkpoints", "figures"]
"""Files and directories that training writes before the result."""


class RunDirectoryError(ValueError):
    """The directory cannot be used for this run; the message says why and what to do."""


@dataclasses.dataclass(frozen=True)
class RunDirectory:
    """Paths of a run's files, and the reading and writing of its JSON."""

    path: Path
    """The directory itself, as --workdir names it."""

    @property
    def config(self) -> Path:
        """`config.json`: the resolved config, from which the run can be repeated."""
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
        """Directory of the tokenizers that the model was trained with."""
        return self.path / "tokenizers"

    @property
    def metrics(self) -> Path:
        """`metrics.jsonl`: the training and validation curves."""
        return self.path / "metrics.jsonl"

    @property
    def finished(self) -> dict[str, Any] | None:
        """The content of `result.json`, or None if the run is not finished.

        Raises:
            RunDirectoryError: `result.json` is damaged.
        """
        path = self.path / RESULT
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
        """The error for a `result.json` that is not as it was written."""
        path = self.path / RESULT
        return RunDirectoryError(f"{path} is damaged ({why}): remove it, and the end of the run is reported anew")

    @property
    def has_progress(self) -> bool:
        """Whether a training step has left anything: a checkpoint, or a row of the curves."""
        saved = (
            self.checkpoints.is_dir()
            and any(  # whole or damaged, but not one whose save was interrupted
                path.name[:1].isdecimal() and "tmp" not in path.name for path in self.checkpoints.iterdir()
            )
        )
        return saved or (self.metrics.exists() and self.metrics.stat().st_size > 0)

    @contextlib.contextmanager
    def undo_on_failure(self, config: dict[str, Any]) -> Iterator[Callable[[], None]]:
        """Remove what a new run wrote if it fails before a step has left anything (see `has_progress`).

        So the directory is free again after an option that was mistyped, or a batch too large for the memory. A run
        that was there before stays as it is. Context manager: yields the function that begins the run, which makes the
        directory and writes `config.json`.

        Raises (that function):
            RunDirectoryError: the directory cannot be written, or another process has begun with another config.
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
            if _check_config(self, config):
                self._change(config)

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

    def changes(self, config: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
        """Return the options that a resumed run has otherwise than before: by name, the value then and now.

        Raises:
            RunDirectoryError: options differ that may not.
        """
        return _check_config(self, config) if self.config.exists() else {}

    def _change(self, config: dict[str, Any]) -> None:
        """Write a config with other options, and set the result of a run that is trained longer aside."""
        steps, result = self.changes(config).get(STEPS), self.path / RESULT
        if steps and result.exists():
            result.rename(result.with_stem(f"{result.stem}_{steps[0]}"))
        write_atomically(self.config, _json(config))

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Write `value` as JSON to the file `name`, atomically, over an older one. NaN and infinity become null."""
        write_atomically(self.path / name, _json(_without_nonfinite(value)))


def open_run_directory(workdir: str | Path, config: dict[str, Any]) -> RunDirectory:
    """Open the directory of the run that `config` describes: a new, empty one, or the one that this run was begun in.

    Args:
        workdir: path of the directory.
        config: nested dict of JSON values; floats are compared by their bits.

    Raises:
        RunDirectoryError: `workdir` belongs to a config that differs in more than more steps or `CHANGEABLE` options,
            or holds files but no config.
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
    # Listed before config.json is looked for, since that is the first file that another process makes here.
    try:
        others = [path.name for path in run.path.iterdir() if not path.name.startswith(run.config.name)]
    except OSError as error:
        raise RunDirectoryError(f"--workdir {run.path} cannot be read: {error.strerror or error}") from error
    if run.config.exists():
        _check_config(run, config)
    elif others:
        raise RunDirectoryError(
            f"{run.path} holds {sorted(others)[0]} but no {run.config.name}, so it is not a run's directory: "
            "choose another --workdir"
        )
    return run


def _check_config(run: RunDirectory, config: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Raise RunDirectoryError unless the directory belongs to `config`; return the options that may differ, and do."""
    try:
        saved = json.loads(run.config.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunDirectoryError(f"{run.config} is not readable JSON: choose another --workdir") from error
    wanted = with_current_names(json.loads(json.dumps(config)))
    saved = with_current_names(saved) if isinstance(saved, dict) else saved
    then, now, changed = _flat(saved), _flat(wanted), {}
    for name in (STEPS, *(f"train.{option}" for option in CHANGEABLE)):
        before, after = then.get(name), now.get(name)
        if (
            before is not None
            and type(before) is type(after)
            and (before < after if name == STEPS else before != after)
        ):
            changed[name] = before, after
    differences = config_differences(saved, wanted)
    if len(differences) > len(changed):
        more = f", and {len(differences) - 3} more" if len(differences) > 3 else ""
        # Another process may just have begun, so this one cannot tell that the directory is free.
        free = "" if run.has_progress else "it has kept no step yet; if no process is training it, remove it, or "
        raise RunDirectoryError(
            f"{run.path} is the directory of another run: {', '.join(differences[:3])}{more}; {free}"
            "choose another --workdir"
        )
    return changed


def config_differences(saved: Any, wanted: Any) -> list[str]:
    """Return a phrase for each leaf in which two configs differ: "train.steps is 10 there and 20 here"."""
    saved, wanted = _flat(saved), _flat(wanted)

    def text(config: dict[str, Any], key: str) -> str:
        return json.dumps(config[key], ensure_ascii=False) if key in config else "absent"

    return [
        f"{key} is {text(saved, key)} there and {text(wanted, key)} here"
        for key in sorted({*saved, *wanted})
        if text(saved, key) != text(wanted, key)
    ]


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Flatten nested dicts: {"optimizer.peak_lr": 0.001, ...}."""
    if not isinstance(value, dict) or not value:
        return {prefix: value}
    leaves = {}
    for key, child in value.items():
        leaves.update(_flat(child, f"{prefix}.{key}" if prefix else str(key)))
    return leaves


def _json(value: Any) -> str:
    """Encode with exact floats and sorted keys. Raises ValueError for NaN and infinity."""
    return json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _without_nonfinite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nonfinite(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nonfinite(child) for child in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
