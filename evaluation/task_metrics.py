"""What the outputs of an encoder–decoder are worth, by what the experiment is about.

- `translation`: sacreBLEU's BLEU and chrF with their signatures, on detokenised text; and exact match.
- `pronunciation`: of grapheme-to-phoneme, where one word may have several right answers: all targets of the split with
  the same source are its references, and it counts once. Word error rate is the part of words that equal none of them,
  phoneme error rate the edits against the closest; phonemes are what spaces separate.
- `exact_match`: the part of outputs that equal their target.

Outputs are what the tokenizer decodes, targets as it would write them (`canonical`: one Unicode form, `@@ ` joined).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

from evaluation import corpus_bleu
from evaluation.text_metrics import exact_match, phoneme_error_rate

Task = Literal["translation", "pronunciation", "exact_match"]


class Scored(NamedTuple):
    """One line of what is scored."""

    source: str
    references: tuple[str, ...]
    group: str | None
    row: int
    """The example that it stands for, the first with this source in pronunciation."""


def rows_to_score(
    task: Task, sources: Sequence[str], targets: Sequence[str], groups: Sequence[str | None] | None
) -> list[Scored]:
    """An example each; in pronunciation a source each, with all its targets (once each)."""
    if task not in get_args(Task):
        raise ValueError(f"task must be one of {', '.join(get_args(Task))}, got {task!r}")
    group_of = groups or [None] * len(sources)
    if task != "pronunciation":
        return [Scored(s, (t,), g, n) for n, (s, t, g) in enumerate(zip(sources, targets, group_of, strict=True))]
    references: dict[tuple[str | None, str], list[str]] = {}
    first: dict[tuple[str | None, str], int] = {}
    for row, (source, target, group) in enumerate(zip(sources, targets, group_of, strict=True)):
        known = references.setdefault((group, source), [])
        first.setdefault((group, source), row)
        if target not in known:
            known.append(target)
    return [Scored(key[1], tuple(right), key[0], first[key]) for key, right in references.items()]


def score(
    task: Task, outputs: Sequence[str], rows: Sequence[Scored], tokenized: bool = False
) -> tuple[dict[str, Any], dict[str, str]]:
    """Metrics by name, and the signatures of those that have one.

    Args:
      tokenized: also `tokenized_bleu`, for text that is tokenised already (see `evaluation.corpus_bleu`).

    Raises:
      ValueError: no outputs, or not as many as `rows`; no phonemes in any reference.
    """
    references = [row.references for row in rows]
    metrics: dict[str, Any] = {"exact_match": exact_match(outputs, references)}
    signatures = {}
    if task == "pronunciation":
        metrics["word_error_rate"] = 1 - metrics["exact_match"]
        metrics["phoneme_error_rate"] = phoneme_error_rate(outputs, references)
    elif task == "translation" or tokenized:
        right = [first for first, *_ in references]
        scorers = {"bleu": corpus_bleu.bleu, "chrf": corpus_bleu.chrf} if task == "translation" else {}
        if tokenized:
            scorers["tokenized_bleu"] = corpus_bleu.tokenized_bleu
        for name, scorer in scorers.items():
            metrics[name], signatures[name] = scorer(outputs, right)
    if any(row.group is not None for row in rows):
        metrics["exact_match_by_group"] = by_group(outputs, rows)
    return metrics, signatures


def by_group(outputs: Sequence[str], rows: Sequence[Scored]) -> Mapping[str, float]:
    """Exact match of each group, the worst first, of equals by name. A row without a group is in none."""
    right: dict[str, list[bool]] = {}
    for output, row in zip(outputs, rows, strict=True):
        if row.group is not None:
            right.setdefault(row.group, []).append(output in row.references)
    means = {group: sum(hits) / len(hits) for group, hits in right.items()}
    return dict(sorted(means.items(), key=lambda item: (item[1], item[0])))
