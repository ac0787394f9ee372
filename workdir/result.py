"""What a run leaves behind: parameters, metrics, figures; also when it is found finished."""

from __future__ import annotations

import base64
import html
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from training.checkpoint import CheckpointManager
from training.ema import averaged
from training.hyperparameters import hyperparameters
from training.step import TrainState, init_state
from workdir.data_spec import read_spec

if TYPE_CHECKING:
    import flax.linen as nn

    from experiments.experiment import Experiment
    from workdir.run_directory import RunDirectory


@dataclass(frozen=True)
class TrainResult:
    """What `train` returns."""

    workdir: Path
    """Directory of the run."""
    model: nn.Module
    """`model.apply({"params": result.params}, ...)` runs it."""
    params: Any
    """Nested dict of arrays: those of the last step."""
    metrics: dict[str, Any]
    """Last validation means, and what the experiment's report measured."""
    figures: dict[str, Path]
    """Pictures (PNG) by name."""

    def _repr_html_(self) -> str:
        """A notebook shows the numbers and the pictures."""
        numbers = "".join(
            f"<tr><td>{html.escape(name)}</td><td>{value:.6g}</td></tr>"
            for name, value in self.metrics.items()
            if isinstance(value, (int, float))
        )
        pictures = "".join(
            f'<p>{html.escape(name)}<br><img alt="{html.escape(name)}" style="max-width:100%" '
            f'src="data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"></p>'
            for name, path in self.figures.items()
        )
        return f"<p>{html.escape(str(self.workdir))}</p><table>{numbers}</table>{pictures}"


def new_state(experiment: Experiment, model: nn.Module, input_shapes: dict[str, tuple[int, ...]]) -> TrainState:
    """The state of the experiment's run before its first step. To be jitted, or to be asked for its shapes only."""
    config = experiment.config
    inputs = {name: jnp.zeros(shape, jnp.int32) for name, shape in input_shapes.items()}
    return init_state(
        lambda key: model.init(key, **inputs)["params"],
        averaged(experiment.optimizer(config)),
        hyperparameters(config.model, config.optimizer, config.train),
        config.train.seed,
    )


def open_checkpoints(experiment: Experiment, run: RunDirectory) -> CheckpointManager:
    """The run's checkpoints: the newest, and the best by the metric that the config names."""
    settings = experiment.config.train
    direction = experiment.metrics.get(settings.best_metric)
    return CheckpointManager(run.checkpoints, settings.max_to_keep, settings.best_metric, direction)


def save_result(run: RunDirectory, result: TrainResult) -> None:
    """Write `result.json`, after which the run is finished."""
    record = {
        "metrics": result.metrics,
        "figures": {name: str(path.relative_to(run.path)) for name, path in result.figures.items()},
    }
    run.finish(record)


def read_result(experiment: Experiment, run: RunDirectory) -> TrainResult | None:
    """The result of a finished run, its parameters read from its last checkpoint; None if it is not finished.

    Raises:
      ValueError: a file of it is damaged; names it.
      OSError: the last checkpoint is gone or cannot be read.
    """
    record = run.finished
    if record is None:
        return None
    try:
        metrics, figures = dict(record["metrics"]), {name: run.path / path for name, path in record["figures"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise run.damaged_result("it has no metrics and figures by name") from error
    spec = read_spec(run)
    model = experiment.model(experiment.config, spec.vocab_sizes)
    with open_checkpoints(experiment, run) as checkpoints:
        like = jax.eval_shape(lambda: new_state(experiment, model, spec.input_shapes))
        params, _ = checkpoints.restore(like.params, experiment.config.train.steps, part="params")
    return TrainResult(run.path, model, params, metrics, figures)
