"""What an experiment is: a config, and the functions that make a run of it.

Every function has a standard version and may be replaced by the card that wants another one: the model, the loss, the
optimizer, the schedule, the step, the report. They import what they need when they are called, since a card must be
readable by the command line without waiting for JAX.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from data.config import DataConfig
from data.home import expand_home
from model.config import LanguageModelConfig, TransformerConfig
from training.config import OptimizerConfig, TrainConfig
from training.directions import LOSS_METRICS, Direction, check_directions
from training.run_directory import RunDirectoryError

if TYPE_CHECKING:
    import flax.linen as nn

    from data.batches import PairData, TextData
    from data.tokenizer import Tokenizer
    from experiments.limits import Limits
    from training.loss import Loss
    from training.optimizer import Optimizer
    from training.schedules import Schedule
    from training.step import TrainStep

STANDARD_METRICS: dict[str, Direction] = LOSS_METRICS | {"bleu": "max"}
"""Of the standard loss, and of `experiments.validation_scores`."""

ModelConfig = TypeVar("ModelConfig", TransformerConfig, LanguageModelConfig)


@dataclass(frozen=True)
class Config(Generic[ModelConfig]):
    """All that a run can be told on the command line. Saved with the run; alone suffices to run it again."""

    data: DataConfig
    model: ModelConfig
    optimizer: OptimizerConfig
    train: TrainConfig
    workdir: str = ""
    """Directory of the run. Empty: runs/NAME."""


@dataclass(frozen=True)
class Trained:
    """A trained model with what belongs to it, as a report gets it."""

    config: Config
    model: nn.Module
    params: Any
    data: PairData | TextData
    figures: Path
    """Directory to write pictures to."""

    @property
    def tokenizers(self) -> Mapping[str, Tokenizer]:
        """Of each side."""
        return self.data.tokenizers

    @property
    def limits(self) -> Limits:
        """What the model was made for."""
        from experiments.limits import limits_of

        return limits_of(self.data)


@dataclass(frozen=True)
class Report:
    """What a report found out."""

    metrics: dict[str, Any]
    """Numbers by name, and lists or dicts of them."""
    figures: dict[str, Path] = dataclasses.field(default_factory=dict)
    """Pictures by name."""


def check_sides(experiment: Experiment, sides: Collection[str]) -> None:
    """Raises ValueError unless data with these sides are what the experiment's model learns from."""
    pairs = isinstance(experiment.config.model, TransformerConfig)
    if ("source" in sides) != pairs:
        source = experiment.config.data.source
        kinds = ["text, for a language model", "pairs of source and target, for an encoder–decoder"]
        raise ValueError(f"data.source {source} is {kinds[not pairs]}; {experiment.name} learns from {kinds[pairs]}")


def standard_model(config: Config, vocab_sizes: Mapping[str, int]) -> nn.Module:
    """The model that `config.model` describes, for vocabularies of these sizes."""
    if isinstance(config.model, TransformerConfig):
        from model.transformer import Transformer

        return Transformer(config.model, vocab_sizes["source"], vocab_sizes["target"])
    from model.language_model import LanguageModel

    return LanguageModel(config.model, vocab_sizes["text"])


def standard_loss(config: Config, model: nn.Module) -> Loss:
    """Cross-entropy per token; for an encoder–decoder with the exact match of whole targets."""
    from training.loss import token_loss

    return token_loss(model, config.train.loss_chunk, exact_match=isinstance(config.model, TransformerConfig))


def standard_optimizer(config: Config) -> Optimizer:
    """AdamW."""
    from training.optimizer import adamw

    return adamw


def standard_schedule(config: Config) -> Schedule:
    """The schedule that `config.optimizer` names."""
    from training.schedules import SCHEDULES

    return SCHEDULES[config.optimizer.schedule]


def standard_step(config: Config, loss: Loss, optimizer: Optimizer, schedule: Schedule) -> TrainStep:
    """One gradient of the whole batch, one update."""
    from training.step import make_train_step

    return make_train_step(loss, optimizer, schedule, config.train.accumulation)


def no_report(trained: Trained) -> Report:
    """The losses of training and validation say it all."""
    return Report({})


@dataclass(frozen=True)
class Experiment:
    """A card. Derive one from another with `dataclasses.replace`, or by calling its `experiment()` and changing it."""

    name: str
    config: Config
    model: Callable[[Config, Mapping[str, int]], nn.Module] = standard_model
    loss: Callable[[Config, nn.Module], Loss] = standard_loss
    optimizer: Callable[[Config], Optimizer] = standard_optimizer
    schedule: Callable[[Config], Schedule] = standard_schedule
    step: Callable[[Config, Loss, Optimizer, Schedule], TrainStep] = standard_step
    report: Callable[[Trained], Report] = no_report
    """Called once at the end with the trained model: scores it, prints, draws."""
    scores: Callable[[Trained], dict[str, float]] | None = None
    """Further validation metrics, measured at each evaluation with the parameters of the moment; train.best_metric may
    name one of them that `metrics` declares. `experiments.validation_scores.greedy_bleu` is one."""
    metrics: Mapping[str, Direction] = dataclasses.field(default_factory=lambda: STANDARD_METRICS)
    """Which way each validation metric is better, "min" or "max", of all that train.best_metric may name. Whoever adds
    one, by a loss or by `scores`, declares it: metrics=STANDARD_METRICS | {"ter": "min"}."""
    scoring: Literal["translation", "pronunciation", "exact_match"] = "translation"
    """How evaluate.py scores the outputs of an encoder–decoder, if it is not told: see `experiments.scoring`."""

    def __post_init__(self):
        check_directions(self.metrics)

    @property
    def workdir(self) -> Path:
        """Directory of the run. Raises RunDirectoryError for a `~` where there is no home directory."""
        try:
            return Path(expand_home(self.config.workdir, "--workdir") or f"runs/{self.name}")
        except ValueError as error:
            raise RunDirectoryError(str(error)) from None
