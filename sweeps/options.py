"""The command line of `sweep.py`: its own options, the search space, and the options of the experiment."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Literal, get_args, get_type_hints

from cli.options import option_types, options_from_json, parse_options
from data.config import DataConfig
from data.home import expand_home
from experiments.experiment import Config, Experiment, ModelConfig, config_record
from experiments.registry import load_experiment
from experiments.search_space import SEED, Choice, Integer, SearchSpace, parse_space
from training.config import OptimizerConfig, TrainConfig

DEFAULT_TRIALS = 20
VECTORIZED = (
    *("optimizer.peak_lr", "optimizer.warmup_steps", "optimizer.final_lr_fraction", "optimizer.b1", "optimizer.b2"),
    *("optimizer.epsilon", "optimizer.weight_decay", "optimizer.clip_norm"),
    *("train.label_smoothing", "model.dropout", "model.attention_dropout"),
)
"""Options in which the trials of one program may differ, the seed besides: numbers in the train state
(`training.hyperparameters`)."""
SECTIONS = ("data", "model", "optimizer", "train")


@dataclass(frozen=True)
class SweepOptions:
    """Options of a sweep.

    Raises:
      ValueError: a value out of range, in one line.
    """

    trials: int | None = None
    """Configurations to train. None: 20, or all points of a grid."""
    workers: int | None = None
    """Trials that train at the same time on this machine, each in a process of its own with its share of the cores.
    None: 1; with --vectorize 8, which tpe learns from before it chooses the next, or all trials of another sampler."""
    vectorize: bool = False
    """Train these trials as one compiled program. They may differ in their seed and in what the train state holds as a
    number: learning rate, warm-up, weight decay, b1, b2, epsilon, clipping, dropout, label smoothing."""
    sampler: Literal["tpe", "random", "grid"] = "tpe"
    """How configurations are chosen: by the results so far (Tree-structured Parzen Estimator, Bergstra et al. 2011), at
    random, or every combination of the values."""
    pruner: Literal["none", "median", "hyperband"] = "none"
    """Which trials are stopped early, by their validation metric so far: none, those worse than the median of the
    others at the same step, or by Hyperband (Li et al. 2018)."""
    space: str = ""
    """Search space, as option=values for each option: log:LOW:HIGH, uniform:LOW:HIGH, int:LOW:HIGH or VALUE,VALUE,...
    Each value of train.seed is trained for every configuration. Empty: the experiment's."""
    storage: str = ""
    """URL of a database that several machines share, postgresql://... Empty: study.db in the sweep's directory."""
    report: bool = False
    """Report on the trials so far, and train none."""

    def __post_init__(self):
        for name in ("trials", "workers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be a positive whole number, got {value}")
        for name in ("sampler", "pruner"):
            choices = get_args(get_type_hints(SweepOptions)[name])
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {getattr(self, name)!r}")
        if self.vectorize and self.pruner != "none":
            raise ValueError("vectorize trains its trials together to the end: leave --pruner out")
        if self.sampler == "grid" and self.trials is not None:
            raise ValueError("trials must be left out for a grid, which trains all of its points")


@dataclass(frozen=True)
class SweepConfig(SweepOptions, Generic[ModelConfig]):
    """Options of a sweep, and those of the experiment in the same words as for `train.py`."""

    workdir: str = ""
    """Directory of the sweep. Empty: runs/NAME-sweep."""
    data: DataConfig = dataclasses.field(kw_only=True)
    model: ModelConfig = dataclasses.field(kw_only=True)
    optimizer: OptimizerConfig = dataclasses.field(kw_only=True)
    train: TrainConfig = dataclasses.field(kw_only=True)


@dataclass(frozen=True)
class Sweep:
    """A sweep: an experiment, the options that its trials share, and the space that they search."""

    experiment: Experiment
    """Its config has what all trials share."""
    default: Config
    """Config of the experiment as its file has it, from which a command line starts."""
    space: SearchSpace
    options: SweepOptions
    directory: Path

    @property
    def metric(self) -> str:
        """The validation metric that trials are compared by, after their last step: train.best_metric."""
        return self.experiment.config.train.best_metric

    @property
    def maximize(self) -> bool:
        """Whether a higher metric is better."""
        return self.experiment.metrics[self.metric] == "max"

    @property
    def searched(self) -> SearchSpace:
        """The space without the seed."""
        return {name: dimension for name, dimension in self.space.items() if name != SEED}

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that each configuration is trained with."""
        seeds = self.space.get(SEED)
        if isinstance(seeds, Integer):
            return tuple(range(seeds.low, seeds.high + 1))
        return seeds.values if isinstance(seeds, Choice) else (self.experiment.config.train.seed,)

    @cached_property
    def points(self) -> list[dict[str, Any]] | None:
        """The configurations, where they are known beforehand: those of a grid, and the one of an empty space."""
        if self.searched and self.options.sampler != "grid":
            return None
        values = [
            range(each.low, each.high + 1) if isinstance(each, Integer) else each.values
            for each in self.searched.values()
        ]
        return [dict(zip(self.searched, point, strict=True)) for point in itertools.product(*values)]

    @property
    def configurations(self) -> int:
        """Number of configurations."""
        return len(self.points) if self.points is not None else self.options.trials or DEFAULT_TRIALS

    @property
    def runs(self) -> int:
        """Number of trials: each configuration with each seed."""
        return self.configurations * len(self.seeds)

    @property
    def members(self) -> int:
        """Number of trials in one program (--vectorize)."""
        default = 8 if self.options.sampler == "tpe" and self.points is None else self.runs
        return min(self.options.workers or default, self.runs)

    @property
    def record(self) -> dict[str, Any]:
        """What the trials depend on, as JSON can hold it: another sweep in the same directory is refused by it."""
        settings = {"sampler": self.options.sampler, "pruner": self.options.pruner}
        settings["members"] = self.members if self.options.vectorize else None  # of one program
        return settings | config_record(self.experiment) | {"space": {k: str(v) for k, v in self.space.items()}}

    def recorded(self, record: Mapping[str, Any], runs: int) -> Sweep:
        """Return the sweep of `runs` trials that `record` is of, in this one's directory.

        Raises:
          ValueError: the experiment has changed since, and lacks an option of the record; in one line.
        """
        config = options_from_json({key: record[key] for key in SECTIONS}, self.default)
        space = parse_space([f"{name}={values}" for name, values in record["space"].items()], config)
        options = dataclasses.replace(self.options, sampler=record["sampler"], pruner=record["pruner"], trials=None)
        experiment = dataclasses.replace(self.experiment, config=config)
        sweep = dataclasses.replace(self, experiment=experiment, space=space, options=options)
        if sweep.points is None:
            trials = -(-runs // len(sweep.seeds))
            sweep = dataclasses.replace(sweep, options=dataclasses.replace(options, trials=trials))
        return sweep

    def words(self, params: Mapping[str, Any], seed: int, *, report: bool = False) -> list[str]:
        """Return the words after `python train.py` that train a configuration, but for its directory.

        Args:
          report: with the report at the end, which a trial leaves out.
        """
        default = flat_options(self.default)
        own = flat_options(self.experiment.config) | dict(params) | {SEED: seed}
        words = [self.experiment.name]
        for name, value in own.items():
            if value != default[name] and name != "workdir" and not (report and name == "train.report"):
                # A value that looks like an option is given after an equals sign.
                words += [f"--{name}={value}"] if str(value).startswith("--") else [f"--{name}", str(value)]
        return words


def parse_sweep(program: str, words: Sequence[str]) -> Sweep:
    """Return the sweep that `words` describe: an experiment's name, then options of the sweep and of the experiment.

    Exits with status 0 after a help text.

    Raises:
      ValueError: an unknown experiment, option or value, in one line.
    """
    name, *rest = words
    experiment, doc = load_experiment(name)
    config = experiment.config
    sections = {key: getattr(config, key) for key in SECTIONS}
    kind = SweepConfig[type(config.model)]
    parsed = parse_options(_with_space_in_one_word(rest), SweepConfig(**sections), f"{program} {name}", doc, kind)
    shared = Config(**{key: getattr(parsed, key) for key in sections})
    options = SweepOptions(**{field.name: getattr(parsed, field.name) for field in dataclasses.fields(SweepOptions)})
    typed = {word.partition("=")[0].removeprefix("--") for word in rest if word.startswith("--")}
    if options.space:
        space = parse_space(options.space.split(), shared)
        if both := sorted(typed & set(space)):
            raise ValueError(f"--{both[0]} has one value for all trials, and --space others: leave one out")
    else:
        space = {name: each for name, each in experiment.space.items() if name not in typed}
    if not space:
        raise ValueError("nothing is searched: wanted --space option=values")
    shared = dataclasses.replace(shared, train=dataclasses.replace(shared.train, report=False))
    directory = Path(expand_home(parsed.workdir, "--workdir") or f"runs/{name}-sweep")
    sweep = Sweep(dataclasses.replace(experiment, config=shared), config, space, options, directory)
    _check(sweep)
    return sweep


def flat_options(config: Any) -> dict[str, Any]:
    """Return the options of a dataclass of dataclasses by full name: {"optimizer.peak_lr": 0.001, ...}."""

    def value(name: str) -> Any:
        found = config
        for part in name.split("."):
            found = getattr(found, part)
        return found

    return {name: value(name) for name in option_types(config)}


def _with_space_in_one_word(words: Sequence[str]) -> list[str]:
    """Join the words that follow --space, up to the next option, into one."""
    joined, rest = [], list(words)
    while rest:
        word = rest.pop(0)
        if word.partition("=")[0] == "--space":
            parts = [word.partition("=")[2]] if "=" in word else []
            while rest and not rest[0].startswith("--"):
                parts.append(rest.pop(0))
            word = f"--space={' '.join(parts)}" if parts else word
        joined.append(word)
    return joined


def _check(sweep: Sweep) -> None:
    """Raises ValueError for options that do not go together."""
    from training.directions import check_declared
    from workdir.tracking import check_tracking

    check_declared(sweep.metric, sweep.experiment.metrics)
    if not sweep.options.report:
        check_tracking(sweep.experiment.config.train.track)
    if not isinstance(sweep.space.get(SEED, Choice(0)), Choice | Integer):
        raise ValueError(f"search space: {SEED} must be a list of seeds, {SEED}=0,1,2")
    if sweep.options.sampler == "grid":
        for name, dimension in sweep.searched.items():
            if not isinstance(dimension, Choice | Integer):
                raise ValueError(
                    f"--sampler grid wants values to combine, {name}=VALUE,VALUE,... (or int:LOW:HIGH), got {dimension}"
                )
    if sweep.options.vectorize:
        for name in sweep.searched:
            if name not in VECTORIZED:
                raise ValueError(
                    f"--vectorize trains trials that differ in {SEED}, {', '.join(VECTORIZED)}; {name} makes another "
                    "program"
                )
