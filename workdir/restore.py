"""A run's directory, opened to use its model: no training data are read, only what the run has kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from data.dataset import tokenizer_file
from data.spec import DataSpec
from data.tokenizers.factory import load_tokenizer
from experiments.registry import read_experiment
from inference.trained_model import TrainedModel
from workdir.checkpoint_selection import SelectedParams, select_params
from workdir.data_spec import read_spec
from workdir.result import new_state, open_checkpoints
from workdir.run_directory import RunDirectory

if TYPE_CHECKING:
    import flax.linen as nn

    from data.tokenizers.base import Tokenizer
    from experiments.experiment import Experiment


@dataclass(frozen=True)
class Run:
    """What is on disk, as `open_run_for_use` returns it."""

    experiment: Experiment
    directory: RunDirectory
    model: nn.Module
    tokenizers: Mapping[str, Tokenizer]
    spec: DataSpec

    @property
    def is_language_model(self) -> bool:
        """Otherwise it is an encoder–decoder."""
        return "text" in self.tokenizers

    def select_params(self, checkpoint: str) -> SelectedParams:
        """The parameters of a checkpoint: best, last, STEP, average:K or ema (see `workdir.checkpoint_selection`).

        Raises:
          ValueError: no such checkpoint; names the run and what there is.
          OSError: it cannot be read.
        """
        experiment, spec = self.experiment, self.spec
        like = jax.eval_shape(lambda: new_state(experiment, self.model, spec.input_shapes))
        try:
            with open_checkpoints(experiment, self.directory) as checkpoints:
                return select_params(checkpoints, like, checkpoint, experiment.config.train.max_to_keep)
        except ValueError as error:
            raise ValueError(f"{self.directory.path}: {error}") from error

    def trained_model(self, params: Any) -> TrainedModel:
        """The model with these parameters."""
        return TrainedModel(self.model, params, self.tokenizers, self.spec)


def open_run_for_use(path: str | Path) -> Run:
    """The run in the directory `path`, finished or not.

    Raises:
      ValueError: it is no run's directory, has no checkpoint, or a file that is not what it should be; in one line.
      OSError: a file of it is gone.
    """
    run = RunDirectory(Path(path))
    if not run.config.exists():
        what = "has no config.json" if run.path.is_dir() else "is no directory"
        raise ValueError(f"{run.path} is not a run: it {what}; wanted a directory that train.py has made, runs/NAME")
    experiment, _ = read_experiment(run.config)
    if not run.checkpoints.is_dir():
        raise ValueError(f"{run.path} has no checkpoint: it was not trained far enough to save one")
    spec = read_spec(run)
    tokenizers = {side: load_tokenizer(tokenizer_file(run.tokenizers, side)) for side in spec.vocab_sizes}
    return Run(experiment, run, experiment.model(experiment.config, spec.vocab_sizes), tokenizers, spec)
