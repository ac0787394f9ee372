"""The train state of a run: built anew, as shapes, and its checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from training.checkpoint import CheckpointManager
from training.ema import averaged
from training.hyperparameters import Hyperparameters, hyperparameters
from training.step import TrainState, init_state

if TYPE_CHECKING:
    import flax.linen as nn

    from data.spec import DataSpec
    from experiments.experiment import Config, Experiment
    from training.optimizer import Optimizer
    from workdir.run_directory import RunDirectory


def build_optimizer(experiment: Experiment) -> Optimizer:
    """Build the experiment's optimizer, with a moving average of the parameters if the config asks for one."""
    return averaged(experiment.optimizer(experiment.config))


def new_state(
    experiment: Experiment,
    model: nn.Module,
    input_shapes: Mapping[str, tuple[int, ...]],
    hyper: Hyperparameters | None = None,
    seed: Int[Array, ""] | None = None,
) -> TrainState:
    """Initialize the train state of a run, before its first step. Pure: may be jitted.

    Args:
      model: what `experiment.model` returned.
      input_shapes: shape of each of the model's inputs, integer ids, in a batch (`DataSpec.input_shapes`).
      hyper, seed: in place of the config's; may be traced.
    """
    config = experiment.config
    inputs = {name: jnp.zeros(shape, jnp.int32) for name, shape in input_shapes.items()}
    return init_state(
        lambda key: model.init(key, **inputs)["params"],
        build_optimizer(experiment),
        config_hyperparameters(config) if hyper is None else hyper,
        config.train.seed if seed is None else seed,
    )


def config_hyperparameters(config: Config) -> Hyperparameters:
    """Return the hyperparameters that a config sets, as the train state holds them."""
    return hyperparameters(config.model, config.optimizer, config.train)


def abstract_state(experiment: Experiment, model: nn.Module, spec: DataSpec) -> TrainState:
    """Describe `new_state` as a `TrainState` of `jax.ShapeDtypeStruct`; nothing is computed."""
    return jax.eval_shape(lambda: new_state(experiment, model, spec.input_shapes))


def open_checkpoints(experiment: Experiment, run: RunDirectory) -> CheckpointManager:
    """Open the run's checkpoints, of which `train.max_to_keep`, `best_metric` and `keep_every` say what is kept."""
    settings = experiment.config.train
    direction = experiment.metrics.get(settings.best_metric)
    return CheckpointManager(
        run.checkpoints, settings.max_to_keep, settings.best_metric, direction, settings.keep_every
    )
