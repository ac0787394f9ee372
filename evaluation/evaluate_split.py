"""The numbers of a trained model on a whole split: what evaluate.py prints and keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from data.loading import PairData, TextData
from data.sources.text_files import one_line
from evaluation.task_metrics import Task, rows_to_score, score
from evaluation.text_metrics import bits_per_byte
from inference.generation_config import DecodingOptions
from inference.trained_model import TrainedModel
from inference.translator import Translator
from training.eval_step import evaluate, make_eval_step
from training.finite import check_finite
from training.loss import token_loss
from training.metrics import perplexity


class Evaluation(NamedTuple):
    """What was measured."""

    metrics: dict[str, Any]
    signatures: dict[str, str]
    """sacreBLEU's, of the metrics that have one."""
    texts: dict[str, list[str]]
    """hypotheses, references, sources: as many lines of each; of a language model none. Several references of one line
    are separated by tabs."""


def evaluate_pairs(
    trained: TrainedModel,
    data: PairData,
    split: str,
    options: DecodingOptions,
    task: Task,
    *,
    group: str = "",
    tokenized: bool = False,
    logits_chunk: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Evaluation:
    """Decode every source of `split`, too long ones cut, and score the outputs (see `evaluation.task_metrics`).

    Also `nats_per_token` and `perplexity` of the targets, given the right tokens before: without label smoothing, the
    end of the sentence counted, as far as the longest training target.

    Args:
      logits_chunk: tokens whose logits are held at a time (`train.logits_chunk`); 0: all.
      group: a feature of the examples, by which exact match is also counted, of those that have it. Empty: none.

    Raises:
      ValueError: no such split or group; outputs that are not numbers, with the example's line, counted from 1; a loss
        that is not finite.
    """
    examples = list(data.examples(split))
    if group and not any(group in example for example in examples):
        raise ValueError(f"examples have no {group!r} to group them by: there are {', '.join(examples[0])}")
    canonical = trained.tokenizers["target"].canonical
    rows = rows_to_score(
        task,
        [one_line(example["source"]) for example in examples],
        [one_line(canonical(example["target"])) for example in examples],
        [example.get(group) for example in examples] if group else None,
    )
    # Of sources that are the same, each is decoded: it costs little, and sampled outputs are those of their row.
    found = Translator(trained, options).split_hypotheses(data, split, progress)
    best = [found[row.row][0] for row in rows]
    outputs = [one_line(each.text) for each in best]
    metrics, signatures = score(task, outputs, rows, tokenized)
    metrics |= {"examples": len(examples), "scored": len(rows)}
    metrics["cut_off"] = sum(not each.finished for each in best)
    loss = _loss(trained, data, split, logits_chunk)
    metrics |= {"nats_per_token": loss, "perplexity": perplexity(loss)}
    texts = {
        "hypotheses": outputs,
        "references": ["\t".join(row.references) for row in rows],
        "sources": [row.source for row in rows],
    }
    return Evaluation(metrics, signatures, texts)


def evaluate_text(trained: TrainedModel, data: TextData, split: str, logits_chunk: int = 0) -> Evaluation:
    """Loss of a language model over every token of `split`, the end of each document counted, with the context that its
    row of training's width gives it.

    Raises:
      ValueError: no such split, or a loss that is not finite.
    """
    data.num_examples(split)
    texts: Sequence[str] = [example["text"] for example in data.examples(split)]
    loss, tokens = _loss(trained, data, split, logits_chunk), len(data.encoded["text"][split].ids)
    metrics = {
        "nats_per_token": loss,
        "perplexity": perplexity(loss),
        "bits_per_byte": bits_per_byte(loss * tokens, texts),
        "tokens": tokens,
        "documents": len(texts),
    }
    return Evaluation(metrics, {}, {})


def _loss(trained: TrainedModel, data: PairData | TextData, split: str, logits_chunk: int) -> float:
    """Plain cross-entropy per token, whatever loss the experiment trains with."""
    eval_step = make_eval_step(token_loss(trained.model, logits_chunk))
    means = evaluate(eval_step, trained.params, data.eval_batches(split))
    check_finite(means, f"on {split}")
    return means["loss"]
