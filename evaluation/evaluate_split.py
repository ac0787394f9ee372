"""Evaluation of a trained model on a whole split: decoding, scoring against references, and the loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from data.sources.text_files import one_line
from evaluation.tasks import TASKS, TOKENIZED_BLEU, TokenLoss, check_task
from evaluation.text_metrics import CorpusScore, exact_match_by_group
from inference.generation_config import DecodingOptions
from inference.trained_model import TrainedModel
from inference.translator import Translator
from training.eval_step import EvalStep, evaluate, make_eval_step
from training.finite import check_finite
from training.loss import token_loss

if TYPE_CHECKING:
    import flax.linen as nn

    from data.loading import PairData, TextData


class ScoredExample(NamedTuple):
    """A source with its output, and the references that it was scored against; each text is one line."""

    source: str
    output: str
    references: tuple[str, ...]
    group: str | None

    @property
    def is_correct(self) -> bool:
        """Whether the output equals a reference."""
        return self.output in self.references


class Evaluation(NamedTuple):
    """Metrics and outputs of a split, as `evaluate_split` returns them."""

    metrics: dict[str, Any]
    signatures: dict[str, str]
    """sacreBLEU's, of the metrics that have one."""
    examples: list[ScoredExample]
    """What was scored, in the order of the split; of a language model []."""

    @property
    def texts(self) -> dict[str, list[str]]:
        """Return hypotheses, references and sources as lines, several references separated by tabs; else {}."""
        if not self.examples:
            return {}
        return {
            "hypotheses": [example.output for example in self.examples],
            "references": ["\t".join(example.references) for example in self.examples],
            "sources": [example.source for example in self.examples],
        }


def evaluate_split(
    trained: TrainedModel,
    data: PairData | TextData,
    split: str,
    task: str,
    options: DecodingOptions | None = None,
    *,
    group: str = "",
    tokenized: bool = False,
    with_loss: bool = True,
    logits_chunk: int = 0,
    loss_rows: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Evaluation:
    """Measure a trained model on `split` by the metrics of `task` (`evaluation.tasks`).

    Encoder–decoder: every source is decoded, too long ones cut, and scored. In `pronunciation` examples with the same
    source (and group) count once, with all their targets as references, the first one's output; in `translation` and
    `exact_match` each example counts, against its own target. So all metrics of a task have one denominator, `scored`,
    and BLEU is what the command `sacrebleu` computes from the texts. Beside the task's metrics: `examples`, `scored`,
    `cut_off` (outputs without an end), and `exact_match_by_group`.

    Loss: cross-entropy per token without label smoothing, whatever the experiment trains with, given the right tokens
    before; the end of each text counts. Targets of pairs count as far as the longest training target; text is read in
    rows of the training width. Beside a language model's metrics: `tokens` and `documents`.

    Args:
      options: how to decode. None: greedily.
      group: a feature of the examples, by which exact match is also counted, of those that have it. Empty: none.
      tokenized: also `tokenized_bleu`.
      with_loss: False leaves out the loss metrics of an encoder–decoder, which cost a pass and a compilation.
      logits_chunk: tokens whose logits are held at a time (`train.logits_chunk`); 0: all.
      loss_rows: rows of a batch of the loss. None: as in training.
      progress: called with the number of decoded sources.

    Raises:
      ValueError: no such split, group or task; outputs that are not numbers, with the example's line, from 1.
      NonFiniteError: the loss is NaN or infinite.
    """
    check_task(task, trained.is_language_model)
    data.num_examples(split)
    examples = list(data.examples(split))
    if trained.is_language_model:
        texts = [example["text"] for example in examples]
        loss = _token_loss(trained, data, split, texts, logits_chunk, loss_rows)
        return Evaluation(_loss_metrics(task, loss) | {"tokens": loss.tokens, "documents": len(texts)}, {}, [])

    if group and not any(group in example for example in examples):
        raise ValueError(f"examples have no {group!r} to group them by: there are {', '.join(examples[0])}")
    canonical = trained.tokenizers["target"].canonical
    sources = [one_line(example["source"]) for example in examples]
    targets = [one_line(canonical(example["target"])) for example in examples]
    groups = [example.get(group) for example in examples] if group else [None] * len(examples)
    # Of equal sources each is decoded: it costs little, and a sampled output depends on its row.
    best = [hypotheses[0] for hypotheses in Translator(trained, options).split_hypotheses(data, split, progress)]
    references = _references(sources, targets, groups, TASKS[task].by_source)
    scored = [ScoredExample(sources[n], one_line(best[n].text), right, groups[n]) for n, right in references.items()]
    metrics, signatures = _text_metrics(task, scored, tokenized)
    metrics |= {"examples": len(examples), "scored": len(scored)}
    metrics["cut_off"] = sum(not best[n].finished for n in references)
    if with_loss:
        metrics |= _loss_metrics(task, _token_loss(trained, data, split, targets, logits_chunk, loss_rows))
    return Evaluation(metrics, signatures, scored)


def _references(
    sources: Sequence[str], targets: Sequence[str], groups: Sequence[str | None], by_source: bool
) -> dict[int, tuple[str, ...]]:
    """Return the references of each scored example, by its number: all examples, or the first of each source."""
    if not by_source:
        return {number: (target,) for number, target in enumerate(targets)}
    first: dict[tuple[str, str | None], int] = {}
    found: dict[int, list[str]] = {}
    for number, (*key, target) in enumerate(zip(sources, groups, targets, strict=True)):
        known = found.setdefault(first.setdefault(tuple(key), number), [])
        if target not in known:
            known.append(target)
    return {number: tuple(known) for number, known in found.items()}


def _text_metrics(task: str, scored: Sequence[ScoredExample], tokenized: bool) -> tuple[dict[str, Any], dict[str, str]]:
    outputs, references = [each.output for each in scored], [each.references for each in scored]
    metrics: dict[str, Any] = {}
    signatures: dict[str, str] = {}
    for name, metric in (TASKS[task].text_metrics | ({"tokenized_bleu": TOKENIZED_BLEU} if tokenized else {})).items():
        value = metric.compute(outputs, references)
        if isinstance(value, CorpusScore):
            value, signatures[name] = value
        metrics[name] = value
    if by_group := exact_match_by_group(outputs, references, [each.group for each in scored]):
        metrics["exact_match_by_group"] = by_group
    return metrics, signatures


def _loss_metrics(task: str, loss: TokenLoss) -> dict[str, Any]:
    return {name: metric.compute(loss) for name, metric in TASKS[task].loss_metrics.items()}


def _token_loss(
    trained: TrainedModel,
    data: PairData | TextData,
    split: str,
    texts: Sequence[str],
    logits_chunk: int,
    rows: int | None,
) -> TokenLoss:
    tokens = 0

    def batches() -> Iterator[Any]:
        nonlocal tokens
        for batch in data.eval_batches(split, rows):
            tokens += int(batch["loss_mask"].sum())
            yield batch

    means = evaluate(_eval_step(trained.model, logits_chunk), trained.params, batches())
    check_finite(means, f"on {split}")
    return TokenLoss(means["loss"], tokens, texts)


@lru_cache(maxsize=4)
def _eval_step(model: nn.Module, logits_chunk: int) -> EvalStep:
    """Return the compiled evaluation step; cached, so that another split or validation is not compiled anew."""
    return make_eval_step(token_loss(model, logits_chunk))
