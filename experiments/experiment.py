"""An experiment: a config, and the functions that make a run of it.

Each function has a standard version that an experiment may replace: data, model, loss, optimizer, schedule, step,
report. They import what they need when they are called, so that the command line reads an experiment without JAX.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from data.config import DataConfig
from data.home import expand_home
from evaluation.tasks import DECODED_METRICS, check_task, default_task
from experiments.search_space import LogUniform, SearchSpace, check_space
from model.config import LanguageModelConfig, TransformerConfig
from training.config import OptimizerConfig, TrainConfig
from training.directions import LOSS_METRICS, Direction, check_directions

if TYPE_CHECKING:
    import flax.linen as nn

    from data.loading import PairData, TextData
    from evaluation.evaluate_split import ScoredExample
    from inference.trained_model import TrainedModel
    from training.loss import Loss
    from training.optimizer import Optimizer
    from training.schedules import Schedule
    from training.step import TrainStep

STANDARD_METRICS: dict[str, Direction] = LOSS_METRICS | DECODED_METRICS
"""Of the standard loss, and of `experiments.reports.decoded_metrics`."""

STANDARD_SPACE: SearchSpace = {"optimizer.peak_lr": LogUniform(1e-4, 1e-2)}
"""What `sweep.py` searches where the experiment declares no other space."""

ModelConfig = TypeVar("ModelConfig", TransformerConfig, LanguageModelConfig)


@dataclass(frozen=True)
class Config(Generic[ModelConfig]):
    """The options of a run, each settable on the command line. Saved with the run, and sufficient to repeat it."""

    data: DataConfig
    model: ModelConfig
    optimizer: OptimizerConfig
    train: TrainConfig
    workdir: str = ""
    """Directory of the run. Empty: runs/NAME."""


@dataclass(frozen=True)
class Report:
    """Metrics and figures of a trained model, kept in `result.json`."""

    metrics: dict[str, Any]
    """Numbers by name, and lists or dicts of them."""
    figures: dict[str, Path] = dataclasses.field(default_factory=dict)
    """Pictures by name."""
    samples: Sequence[ScoredExample] = ()
    """Scored outputs of a held-out split, of which the run's page shows some."""


OLD_NAMES = {
    ("train", "accumulation"): "grad_accumulation_steps",
    ("train", "loss_chunk"): "logits_chunk",
    ("train", "keep_checkpoints"): "max_to_keep",
}
"""(section, option) in configs of runs from before December 2026 -> the option's name today."""


NEW_OPTIONS = {
    "train": {"report": True, "track": "none", "keep_every": 0, "init_from": "", "watchdog_minutes": 0.0},
}
"""section -> options that configs of older runs lack, with the value that says what those runs did."""


def with_current_names(record: dict[str, Any]) -> dict[str, Any]:
    """Bring a config, as JSON has it, up to date: rename the options that had other names, add those it lacks."""
    return {
        section: NEW_OPTIONS.get(section, {})
        | {OLD_NAMES.get((section, name), name): value for name, value in options.items()}
        if isinstance(options, dict)
        else options
        for section, options in record.items()
    }


def config_record(experiment: Experiment) -> dict[str, Any]:
    """Return the experiment's name and resolved config as JSON can hold them, without the directory, which may move."""
    record = {"experiment": experiment.name} | dataclasses.asdict(experiment.config)
    del record["workdir"]
    return record


def check_data_matches_model(experiment: Experiment, sides: Collection[str]) -> None:
    """Raises ValueError unless data with these sides are what the experiment's model learns from."""
    pairs = isinstance(experiment.config.model, TransformerConfig)
    if ("source" in sides) != pairs:
        source = experiment.config.data.source
        kinds = ["text, for a language model", "pairs of source and target, for an encoder–decoder"]
        raise ValueError(f"data.source {source} is {kinds[not pairs]}; {experiment.name} learns from {kinds[pairs]}")


def standard_data(config: Config, tokenizers_from: Path | None) -> PairData | TextData:
    """Load the dataset that `config.data.source` names. Raises as `data.loading.load`."""
    from data.loading import load

    return load(config.data, tokenizers_from)


def standard_model(config: Config, vocab_sizes: Mapping[str, int]) -> nn.Module:
    """Build the model that `config.model` describes, for vocabularies of these sizes."""
    return build_model(config, vocab_sizes)


def rotary_model(config: Config, vocab_sizes: Mapping[str, int]) -> nn.Module:
    """Build `standard_model` with rotary positions in self-attention. Raises ValueError for heads of odd width."""
    from model.components import rotary_components

    return build_model(config, vocab_sizes, rotary_components(config.model))


def modern_model(config: Config, vocab_sizes: Mapping[str, int]) -> nn.Module:
    """Build `standard_model` with rotary positions, RMSNorm and SwiGLU. Raises ValueError for heads of odd width."""
    from model.components import modern_components

    return build_model(config, vocab_sizes, modern_components(config.model))


def build_model(config: Config, vocab_sizes: Mapping[str, int], components: BlockComponents | None = None) -> nn.Module:
    """Build the model that `config.model` describes, its blocks made of `components`; None: those of the config."""
    if isinstance(config.model, TransformerConfig):
        from model.transformer import Transformer

        return Transformer(config.model, vocab_sizes["source"], vocab_sizes["target"], components)
    from model.language_model import LanguageModel

    return LanguageModel(config.model, vocab_sizes["text"], components)


def standard_loss(config: Config, model: nn.Module) -> Loss:
    """Cross-entropy per token; for an encoder–decoder with the exact match of whole targets."""
    from training.loss import token_loss

    return token_loss(model, config.train.logits_chunk, exact_match=isinstance(config.model, TransformerConfig))


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

    return make_train_step(loss, optimizer, schedule, config.train.grad_accumulation_steps)


@dataclass(frozen=True)
class Experiment:
    """An experiment; `dataclasses.replace` derives another from it."""

    name: str
    config: Config
    data: Callable[[Config, Path | None], PairData | TextData] = standard_data
    """(config, directory of the run's tokenizers or None) -> the data; `data.loading.load_examples` makes them of
    examples in memory, or generated."""
    model: Callable[[Config, Mapping[str, int]], nn.Module] = standard_model
    """(config, vocabulary sizes by side) -> a Flax module: a `training.trainable.TrainableModel`, and where text is
    generated a `decoding.decodable.DecodableModel`."""
    loss: Callable[[Config, nn.Module], Loss] = standard_loss
    optimizer: Callable[[Config], Optimizer] = standard_optimizer
    schedule: Callable[[Config], Schedule] = standard_schedule
    step: Callable[[Config, Loss, Optimizer, Schedule], TrainStep] = standard_step
    report: Callable[[TrainedModel, PairData | TextData, Path], Report] | None = None
    """Called once at the end with the trained model, the data and a directory for pictures: measures, prints, draws.
    None: `experiments.reports.task_report(task)`."""
    validation_metrics: Callable[[TrainedModel, PairData | TextData], dict[str, float]] | None = None
    """Further validation metrics, measured at each evaluation with the current parameters; train.best_metric may name
    one of them that `metrics` declares. `experiments.reports.decoded_metrics` makes such a function."""
    metrics: Mapping[str, Direction] = dataclasses.field(default_factory=lambda: STANDARD_METRICS)
    """Which way each validation metric is better, "min" or "max", of all that train.best_metric may name. A metric
    added by a loss or by `validation_metrics` is declared here: metrics=STANDARD_METRICS | {"ter": "min"}."""
    baselines: Callable[[Config], Sequence[Experiment]] | None = None
    """Experiments to compare with, given this one's config: trained after it in directories of its own, and their
    metrics reported beside its own as NAME_METRIC."""
    space: SearchSpace = dataclasses.field(default_factory=lambda: STANDARD_SPACE)
    """What `sweep.py` searches, option by option; `--space` on its command line replaces all of it."""
    task: str | None = None
    """What evaluate.py and the report measure (`evaluation.tasks.TASKS`). None: translation, or language_modeling for a
    language model."""

    def __post_init__(self):
        check_directions(self.metrics)
        check_space(self.space, self.config)
        is_language_model = isinstance(self.config.model, LanguageModelConfig)
        if self.task is None:
            object.__setattr__(self, "task", default_task(is_language_model))
        check_task(self.task, is_language_model)

    @property
    def workdir(self) -> Path:
        """Return the directory of the run. Raises ValueError for a `~` where there is no home directory."""
        return Path(expand_home(self.config.workdir, "--workdir") or f"runs/{self.name}")
