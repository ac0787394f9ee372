"""Reports at the end of training, and decoded validation metrics, for any task of `evaluation.tasks`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evaluation.tasks import TASKS
from experiments.experiment import Report

if TYPE_CHECKING:
    from data.loading import PairData, TextData
    from evaluation.evaluate_split import ScoredExample
    from inference.trained_model import TrainedModel

LOSS_ROWS = 128
"""Rows of a batch when the loss of a held-out split is measured."""
SHOWN_TOKENS = 48
"""Tokens of a language model's text in the picture of its attention."""
SHOWN_CHARACTERS = 400
"""Of the text that these tokens are taken from: a validation split may be one long document."""
RESULT_NAMES = {"nats_per_token": "nats"}
"""Metrics that `result.json` calls otherwise: `test_nats`."""


def task_report(task: str, logits_chunk: int = 0) -> Callable[[TrainedModel, PairData | TextData, Path], Report]:
    """The standard report: the task's metrics of every held-out split, and samples of greedy outputs.

    In `Report.metrics` they are SPLIT_METRIC, such as `test_bleu`, and SPLIT_UNIT is the number of what was scored. Of
    an encoder–decoder only the metrics of decoded text are measured. A split without any text, as the targets of a
    shared task may be, is left out, and a line says so.

    Args:
      logits_chunk: as for `evaluation.evaluate_split.evaluate_split`.

    Raises:
      ValueError: no such task.
    """
    wanted = TASKS.get(task)
    if wanted is None:
        raise ValueError(f"task must be one of {', '.join(TASKS)}, got {task!r}")

    def report(trained: TrainedModel, data: PairData | TextData, figures: Path) -> Report:
        from evaluation.evaluate_split import evaluate_split

        side = "text" if trained.is_language_model else "target"
        metrics: dict[str, float] = {}
        samples: Sequence[ScoredExample] = ()
        for split in data.encoded:
            if split == "train":
                continue
            if not any(example[side].strip() for example in data.examples(split)):
                print(f"{split}: not scored, since all its {side}s are blank")
                continue
            found = evaluate_split(
                trained, data, split, task, with_loss=False, logits_chunk=logits_chunk, loss_rows=LOSS_ROWS
            )
            count = found.metrics["documents" if trained.is_language_model else "scored"]
            values = {name: found.metrics[name] for name in wanted.metrics if name in found.metrics}
            metrics |= {f"{split}_{RESULT_NAMES.get(name, name)}": value for name, value in values.items()}
            metrics[f"{split}_{wanted.unit}"] = count
            shown = ", ".join(f"{name.replace('_', ' ')} {value:,.4f}" for name, value in values.items())
            print(f"{split}: {shown}; {count:,} {wanted.unit}")
            show(found.examples)
            samples = found.examples
        return Report(metrics, draw_attention(trained, data, figures), samples)

    return report


def draw_attention(trained: TrainedModel, data: PairData | TextData, figures: Path) -> dict[str, Path]:
    """Draw where the last layer attends in the first validation example that has a text; {} if there is none to draw.

    Of a language model it is the beginning of the text, at most `SHOWN_TOKENS` of it. A model of one's own need not sow
    its attention weights.
    """
    from analysis.attention import attention_map, shortened
    from inference.attention import NoAttentionError, most_tokens, token_attention
    from inference.translator import Translator

    side = "text" if trained.is_language_model else "source"
    texts = (example[side] for example in data.examples("validation"))
    text = next((text for text in texts if text.strip()), "")
    if not text:
        return {}
    kind = "self_attention" if trained.is_language_model else "decoder_cross_attention"
    try:
        if trained.is_language_model:
            tokenizer, most = trained.tokenizers["text"], min(SHOWN_TOKENS, most_tokens(trained))
            tokens = tokenizer.encode(text[:SHOWN_CHARACTERS])[:most]
            text, maps = tokenizer.decode(tokens), token_attention(trained, tokens)
        else:
            maps = Translator(trained).attention(text)
    except NoAttentionError:
        return {}
    weights, keys, queries = maps[kind]
    path = figures / "attention.png"
    attention_map(weights[-1], keys, queries, path, f"Where the last layer looks: {shortened(text)}", kind)
    return {"attention": path}


def no_report(trained: TrainedModel, data: PairData | TextData, figures: Path) -> Report:
    """No report beyond the curves of training and validation."""
    return Report({})


def decoded_metrics(task: str, *names: str) -> Callable[[TrainedModel, PairData], dict[str, float]]:
    """Metrics of greedy outputs for the whole validation split, as `Experiment.validation_metrics`.

        Experiment(..., validation_metrics=decoded_metrics("translation", "bleu"))       and train.best_metric=bleu

    Raises:
      ValueError: no such task, or no such text metric of it.
    """
    known = TASKS[task].text_metrics if task in TASKS else {}
    for name in names:
        if name not in known:
            raise ValueError(f"task {task!r} has no text metric {name!r}: there are {', '.join(known) or 'none'}")

    def validation_metrics(trained: TrainedModel, data: PairData) -> dict[str, float]:
        from evaluation.evaluate_split import evaluate_split

        found = evaluate_split(trained, data, "validation", task, with_loss=False).metrics
        return {name: found[name] for name in names}

    return validation_metrics


def show(examples: Sequence[ScoredExample], count: int = 5) -> None:
    """Print `count` outputs from all over the split, each with its references unless it is right."""
    for example in examples[:: max(len(examples) // count, 1)][:count]:
        verdict = "right" if example.is_correct else f"not {' or '.join(example.references)}"
        print(f"  {example.source}  ->  {example.output}  ({verdict})")
