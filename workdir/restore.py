"""Loading of a run for inference and evaluation, from its directory alone: no training data are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.dataset import tokenizer_file
from data.spec import DataSpec
from data.tokenizers.factory import load_tokenizer
from experiments.registry import read_experiment
from inference.trained_model import TrainedModel
from workdir.checkpoint_selection import SelectedParams, select_params
from workdir.data_spec import read_spec
from workdir.digests import check_digests
from workdir.run_directory import RunDirectory
from workdir.train_state import abstract_state, open_checkpoints

if TYPE_CHECKING:
    import flax.linen as nn

    from data.tokenizers.base import Tokenizer
    from experiments.experiment import Experiment


@dataclass(frozen=True)
class Run:
    """A run on disk, finished or not, as `load_run` returns it: all but the parameters."""

    experiment: Experiment
    directory: RunDirectory
    model: nn.Module
    tokenizers: Mapping[str, Tokenizer]
    """One for each side: source and target, or text."""
    spec: DataSpec

    @property
    def is_language_model(self) -> bool:
        """Whether the model is a language model; otherwise it is an encoder–decoder."""
        return "text" in self.tokenizers

    def select_params(self, checkpoint: str) -> SelectedParams:
        """Restore the parameters of a checkpoint: best, last, STEP, average:K or ema.

        Raises:
          ValueError, OSError: as `workdir.checkpoint_selection.select_params`; a ValueError names the run.
        """
        like = abstract_state(self.experiment, self.model, self.spec)
        try:
            with open_checkpoints(self.experiment, self.directory) as checkpoints:
                return select_params(checkpoints, like, checkpoint, self.experiment.config.train.max_to_keep)
        except ValueError as error:
            raise ValueError(f"{self.directory.path}: {error}") from error

    def trained_model(self, params: Any) -> TrainedModel:
        """Join the model and `params`, such as `select_params(...).params`."""
        return TrainedModel(self.model, params, self.tokenizers, self.spec)


def load_run(path: str | Path) -> Run:
    """Load the config, the tokenizers and the model of the run in the directory `path`.

    Raises:
      ValueError: it is no run's directory, has no checkpoint, or one of its files is damaged; in one line.
      OSError: one of its files is missing.
    """
    run = RunDirectory(Path(path))
    if not run.config.exists():
        what = "has no config.json" if run.path.is_dir() else "is no directory"
        raise ValueError(f"{run.path} is not a run: it {what}; wanted a directory that train.py has made, runs/NAME")
    check_digests(run)
    experiment, _ = read_experiment(run.config)
    if not run.checkpoints.is_dir():
        raise ValueError(f"{run.path} has no checkpoint: it was not trained far enough to save one")
    spec = read_spec(run)
    tokenizers = {side: load_tokenizer(tokenizer_file(run.tokenizers, side)) for side in spec.vocab_sizes}
    return Run(experiment, run, experiment.model(experiment.config, spec.vocab_sizes), tokenizers, spec)
