"""Where the curves of a run go by `--train.track`: to Weights & Biases ("wandb", with the extra of that name).

The package's own settings say where a run goes: WANDB_PROJECT ("qkv" unless set), WANDB_ENTITY, WANDB_RUN_GROUP,
WANDB_TAGS. With WANDB_MODE=offline all stays in the run's directory, for `wandb sync` to send later.
"""

import importlib.util
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training.retry import warn
from workdir.atomic_write import write_atomically
from workdir.metric_writer import Tracker

ID_FILE = "wandb_id"
"""Holds the id at Weights & Biases, by which a resumed run goes on with its curves."""


def check_tracking(track: str) -> None:
    """Raises ValueError for "wandb" without the package, or where nobody is logged in and its mode is not offline."""
    if track == "none":
        return
    if importlib.util.find_spec("wandb") is None:
        raise ValueError("train.track wandb needs the package wandb: python -m pip install -e '.[wandb]'")
    import wandb

    if wandb.setup().settings.mode in ("offline", "disabled", "dryrun"):
        return
    try:
        problem = "" if wandb.login(prompt=False) else "nobody is logged in"
    except Exception as error:  # of the package, or of the network below it
        problem = str(error)
    if problem:
        raise ValueError(f"train.track wandb: {problem}: run `wandb login`, or set WANDB_MODE=offline")


def open_trackers(track: str, workdir: Path, config: Mapping[str, Any]) -> list[Tracker]:
    """Return what `track` names, for the `MetricWriter`. Raises OSError as `WandbTracker`."""
    return [] if track == "none" else [WandbTracker(workdir, config)]


def track_result(track: str, workdir: Path, config: Mapping[str, Any], metrics: Mapping[str, Any]) -> None:
    """Add the result's metrics to the tracked run, which may be closed; a failure is a line on stderr."""
    if track == "none":
        return
    try:
        tracker = WandbTracker(workdir, config)
        tracker.summarize(metrics)
        tracker.close()
    except Exception as error:
        warn(f"{WandbTracker.name} lacks the result, {workdir} has it: {error}")


class WandbTracker:
    """A run at Weights & Biases, its x-axis the number of finished steps.

    A run that is resumed goes on with its curves. Steps that a killed process had logged after its last checkpoint are
    logged again, with the same values: rows at Weights & Biases cannot be taken back.

    Args:
        workdir: the run's directory, whose name is the run's.
        config: shown beside the curves.

    Raises:
        OSError: the run could not be begun there, for want of a network or of the right to; says why.
    """

    name = "Weights & Biases"

    def __init__(self, workdir: Path, config: Mapping[str, Any]):
        import wandb

        write_atomically(workdir / ID_FILE, uuid.uuid4().hex, overwrite=False)
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "qkv"),
                name=workdir.resolve().name,
                id=(workdir / ID_FILE).read_text(encoding="utf-8"),
                resume="allow",
                reinit="create_new",  # the members of a vectorized sweep are several in one process
                dir=str(workdir),
                config=dict(config),
                settings=wandb.Settings(console="off"),
            )
        except wandb.errors.Error as error:
            raise OSError(f"train.track wandb: {error}") from error
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Log one row."""
        self._run.log({"step": step, **values})

    def summarize(self, metrics: Mapping[str, Any]) -> None:
        """Add the result's metrics to the table of runs."""
        self._run.summary.update(dict(metrics))

    def close(self, exit_code: int = 0) -> None:
        """Send what is left. With an `exit_code` other than 0 the run is shown as failed."""
        self._run.finish(exit_code)
