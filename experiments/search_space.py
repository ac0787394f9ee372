"""Search spaces of hyperparameter sweeps: which options are searched, and over which values.

An experiment declares its own, `Experiment(..., space={"optimizer.peak_lr": LogUniform(1e-4, 1e-2)})`; `sweep.py
--space optimizer.peak_lr=log:1e-4:1e-2 model.d_model=64,128` takes another for one sweep. `train.seed` is not searched:
each configuration is trained once with each of its values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any, get_args, get_origin

from cli.options import option_types, value_from_text, wanted_text
from cli.suggestions import did_you_mean

SEED = "train.seed"
NOT_SEARCHED = {
    "workdir": "each trial has a directory of its own",
    "train.best_metric": "trials are compared by it",
    "train.report": "a trial is compared on validation, and makes no report",
}
"""Option -> why it is the same for all trials."""


@dataclass(frozen=True)
class LogUniform:
    """Numbers from `low` to `high` whose logarithm is uniform. Raises ValueError unless 0 < low < high."""

    low: float
    high: float

    def __post_init__(self):
        if not (0 < self.low < self.high and math.isfinite(self.high)):
            raise ValueError(f"{self} wants 0 < low < high")

    def __str__(self) -> str:
        return f"log:{self.low!r}:{self.high!r}"


@dataclass(frozen=True)
class Uniform:
    """Numbers from `low` to `high`, uniformly. Raises ValueError unless low < high."""

    low: float
    high: float

    def __post_init__(self):
        if not (self.low < self.high and math.isfinite(self.low) and math.isfinite(self.high)):
            raise ValueError(f"{self} wants low < high")

    def __str__(self) -> str:
        return f"uniform:{self.low!r}:{self.high!r}"


@dataclass(frozen=True)
class Integer:
    """Whole numbers from `low` to `high`, both included. Raises ValueError unless low < high."""

    low: int
    high: int

    def __post_init__(self):
        if not self.low < self.high:
            raise ValueError(f"{self} wants low < high")

    def __str__(self) -> str:
        return f"int:{self.low}:{self.high}"


@dataclass(frozen=True)
class Choice:
    """Any of `values`, in no order. Raises ValueError if there is none, or one twice."""

    values: tuple[Any, ...]

    def __init__(self, *values: Any):
        object.__setattr__(self, "values", values)
        if not values or len(set(values)) < len(values):
            raise ValueError(f"a choice wants values that differ, got {self}")

    def __str__(self) -> str:
        return ",".join(map(str, self.values))


Dimension = LogUniform | Uniform | Integer | Choice
SearchSpace = Mapping[str, Dimension]
"""Option, `section.name`, -> its values."""
RANGES = {"log": (LogUniform, float), "uniform": (Uniform, float), "int": (Integer, int)}
"""Word before the first colon -> the range and the type of its two ends."""
FORMS = "log:LOW:HIGH, uniform:LOW:HIGH, int:LOW:HIGH or VALUE,VALUE,..."


def parse_space(words: Sequence[str], config: Any) -> dict[str, Dimension]:
    """Parse `option=values` words: `optimizer.peak_lr=log:1e-4:1e-2`, `model.d_model=64,128`, `train.seed=0,1,2`.

    Args:
      config: the options, a dataclass of dataclasses; a choice has values of its option's type.

    Raises:
      ValueError: a word of another form, an option twice, or what `check_space` refuses; in one line.
    """
    space: dict[str, Dimension] = {}
    types = option_types(config)
    for word in words:
        name, equals, text = word.partition("=")
        name = name.removeprefix("--")
        if not equals or not text:
            raise ValueError(f"--space wants option=values, the values {FORMS}; got {word!r}")
        _check_name(name, types)
        if name in space:
            raise ValueError(f"--space has {name} twice")
        space[name] = _parse_dimension(name, text, types[name])
    check_space(space, config)
    return space


def check_space(space: SearchSpace, config: Any) -> None:
    """Raises ValueError unless each option of `space` is one of `config` that can be searched, with values of its type;
    in one line.
    """
    types = option_types(config)
    for name, dimension in space.items():
        _check_name(name, types)
        members = get_args(types[name]) if get_origin(types[name]) is UnionType else (types[name],)
        wanted = wanted_text(types[name])
        if isinstance(dimension, Choice):
            for value in dimension.values:
                try:
                    same = value_from_text(str(value), types[name]) == value
                except ValueError:
                    same = False
                if not same:
                    raise ValueError(f"search space: {name} must be {wanted}, got {value!r}")
        elif isinstance(dimension, Integer) and not {int, float} & set(members):
            raise ValueError(f"search space: {name} must be {wanted}, got whole numbers, {dimension}")
        elif not isinstance(dimension, Integer) and float not in members:
            raise ValueError(f"search space: {name} must be {wanted}, got numbers, {dimension}")


def _check_name(name: str, types: Mapping[str, Any]) -> None:
    if name not in types:
        near = did_you_mean(name, types, "; train.py EXPERIMENT --help shows them all")
        raise ValueError(f"search space: unknown option {name}{near}")
    if name in NOT_SEARCHED:
        raise ValueError(f"search space: {name} is not searched, since {NOT_SEARCHED[name]}")


def _parse_dimension(name: str, text: str, kind: Any) -> Dimension:
    word, colon, ends = text.partition(":")
    if colon and word in RANGES:
        dimension, end = RANGES[word]
        try:
            low, high = (end(each) for each in ends.split(":"))
        except ValueError:
            wanted = "whole numbers" if end is int else "numbers"
            raise ValueError(f"--space {name}: wanted {word}:LOW:HIGH with two {wanted}, got {text!r}") from None
        return dimension(low, high)
    values = []
    for each in text.split(","):
        try:
            values.append(value_from_text(each, kind))
        except ValueError:
            raise ValueError(f"--space {name}: must be {wanted_text(kind)}, got {each!r}; values are {FORMS}") from None
    try:
        return Choice(*values)
    except ValueError as error:
        raise ValueError(f"--space {name}: {error}") from None
