"""A run's directory, opened to use its model: no training data are read, only what the run has kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from data.dataset import tokenizer_file
from data.tokenizers import load_tokenizer
from experiments.limits import Limits, read_limits
from experiments.result import new_state, open_checkpoints
from experiments.saved_config import read_experiment
from training.checkpoint_choice import Chosen, choose
from training.run_directory import RunDirectory

if TYPE_CHECKING:
    import flax.linen as nn

    from data.tokenizer import Tokenizer
    from experiments.experiment import Experiment


@dataclass(frozen=True)
class LoadedModel:
    """A model that can be used: what `Translator` and `continuation` want. `Trained` has the same names."""

    model: nn.Module
    params: Any
    tokenizers: Mapping[str, Tokenizer]
    """Of each side, source and target or text."""
    limits: Limits


@dataclass(frozen=True)
class SavedRun:
    """What is on disk, as `open_saved_run` returns it."""

    experiment: Experiment
    directory: RunDirectory
    model: nn.Module
    tokenizers: Mapping[str, Tokenizer]
    limits: Limits

    @property
    def is_language_model(self) -> bool:
        """Otherwise it is an encoder–decoder."""
        return "text" in self.tokenizers

    def choose(self, checkpoint: str) -> Chosen:
        """The parameters of a checkpoint: best, last, STEP, average:K or ema (see `training.checkpoint_choice`).

        Raises:
          ValueError: no such checkpoint; names the run and what there is.
          OSError: it cannot be read.
        """
        experiment, limits = self.experiment, self.limits
        like = jax.eval_shape(lambda: new_state(experiment, self.model, limits.input_shapes))
        try:
            with open_checkpoints(experiment, self.directory) as checkpoints:
                return choose(checkpoints, like, checkpoint, experiment.config.train.keep_checkpoints)
        except ValueError as error:
            raise ValueError(f"{self.directory.path}: {error}") from error

    def loaded(self, params: Any) -> LoadedModel:
        """The model with these parameters."""
        return LoadedModel(self.model, params, self.tokenizers, self.limits)


def open_saved_run(path: str | Path) -> SavedRun:
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
    limits = read_limits(run)
    tokenizers = {side: load_tokenizer(tokenizer_file(run.tokenizers, side)) for side in limits.vocab_sizes}
    return SavedRun(experiment, run, experiment.model(experiment.config, limits.vocab_sizes), tokenizers, limits)
