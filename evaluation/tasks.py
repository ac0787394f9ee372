"""Registry of tasks: the metrics of each, which way each metric is better, and what counts as one example.

A metric is added here, and nowhere else: `evaluate.py`, the report at the end of training and `train.best_metric` know
it by its name. Outputs are what the tokenizer decodes, references what it would write for the targets (`canonical`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from evaluation.text_metrics import (
    CorpusScore,
    References,
    bits_per_byte,
    bleu,
    chrf,
    exact_match,
    phoneme_error_rate,
    tokenized_bleu,
    word_error_rate,
)
from training.directions import Direction
from training.metrics import perplexity


class TokenLoss(NamedTuple):
    """Summed loss over a split and the number of its tokens."""

    nats_per_token: float
    tokens: int
    """Labels, the end of each text counted."""
    texts: Sequence[str]
    """What was predicted; targets of pairs."""


@dataclass(frozen=True)
class TextMetric:
    """A metric of decoded outputs."""

    compute: Callable[[Sequence[str], References], float | CorpusScore]
    direction: Direction


@dataclass(frozen=True)
class LossMetric:
    """A metric that follows from the loss of the right tokens."""

    compute: Callable[[TokenLoss], float]
    direction: Direction


@dataclass(frozen=True)
class Task:
    """A task: the metrics that a split is evaluated by."""

    unit: str
    """What is counted, in the plural: the report has a number `SPLIT_UNIT`."""
    text_metrics: Mapping[str, TextMetric]
    """By name. Empty: nothing is decoded."""
    loss_metrics: Mapping[str, LossMetric]
    """By name."""
    by_source: bool = False
    """True: examples with the same source count once, with all their targets as references. False: each example counts,
    against its own target."""

    @property
    def metrics(self) -> dict[str, TextMetric | LossMetric]:
        """Return all metrics by name."""
        return {**self.text_metrics, **self.loss_metrics}


def perplexity_per_word(loss: TokenLoss) -> float:
    """exp(nats / (words + documents)): spaces separate words, and the end of each document is one more.

    As the One Billion Word benchmark counts (Chelba et al. 2013); the same for every tokenizer.
    """
    words = sum(len(text.split()) for text in loss.texts) + len(loss.texts)
    return perplexity(loss.nats_per_token * loss.tokens / words)


def _one_reference(score: Callable[[Sequence[str], Sequence[str]], CorpusScore]) -> Callable[..., CorpusScore]:
    return lambda outputs, references: score(outputs, [first for first, *_ in references])


_EXACT_MATCH = TextMetric(exact_match, "max")
_LOSS = {
    "nats_per_token": LossMetric(lambda loss: loss.nats_per_token, "min"),
    "perplexity": LossMetric(lambda loss: perplexity(loss.nats_per_token), "min"),
}

TASKS: dict[str, Task] = {
    "translation": Task(
        "sentences",
        {
            "exact_match": _EXACT_MATCH,
            "bleu": TextMetric(_one_reference(bleu), "max"),
            "chrf": TextMetric(_one_reference(chrf), "max"),
        },
        _LOSS,
    ),
    "pronunciation": Task(
        "words",
        {
            "exact_match": _EXACT_MATCH,
            "word_error_rate": TextMetric(word_error_rate, "min"),
            "phoneme_error_rate": TextMetric(phoneme_error_rate, "min"),
        },
        _LOSS,
        by_source=True,
    ),
    "exact_match": Task("examples", {"exact_match": _EXACT_MATCH}, _LOSS),
    "language_modeling": Task(
        "documents",
        {},
        _LOSS
        | {
            "bits_per_byte": LossMetric(
                lambda loss: bits_per_byte(loss.nats_per_token * loss.tokens, loss.texts), "min"
            ),
            "perplexity_per_word": LossMetric(perplexity_per_word, "min"),
        },
    ),
}

TOKENIZED_BLEU = TextMetric(_one_reference(tokenized_bleu), "max")
"""Measured when it is asked for, in any task that decodes."""

DECODED_METRICS: dict[str, Direction] = {
    name: metric.direction for task in TASKS.values() for name, metric in task.text_metrics.items()
}
"""Which way each text metric is better."""


def default_task(is_language_model: bool) -> str:
    """Return the task of an experiment that names none."""
    return "language_modeling" if is_language_model else "translation"


def check_task(name: str, is_language_model: bool) -> None:
    """Raises ValueError unless `name` is a task, and one of this kind of model."""
    if name not in TASKS:
        raise ValueError(f"task must be one of {', '.join(TASKS)}, got {name!r}")
    if bool(TASKS[name].text_metrics) == is_language_model:
        kind, other = ("a language model", "decoded outputs") if is_language_model else ("an encoder–decoder", "text")
        fitting = [name for name, task in TASKS.items() if bool(task.text_metrics) != is_language_model]
        raise ValueError(f"task {name!r} measures {other}, and the model is {kind}: wanted {' or '.join(fitting)}")
