"""Corpus-level metrics of texts against references: exact match, BLEU, chrF, error rates, bits per byte.

Texts are compared as they are: to ignore case, punctuation or tokenisation, normalise both sides first.
A corpus's score is never the mean of its sentences' scores: errors and lengths are added, and divided once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

References = Sequence[Sequence[str]]
"""For each output all right answers, at least one."""


class CorpusScore(NamedTuple):
    """A score with the signature that says how it was computed."""

    score: float
    """0 to 100."""
    signature: str
    """sacreBLEU's: references, case, tokenisation, smoothing, version."""


def exact_match(outputs: Sequence[str], references: References) -> float:
    """Return the fraction of `outputs` that equal one of their references.

    Raises:
      ValueError: no outputs, another number of references, or an output without reference.
      TypeError: the references of an output are one string and not a list of them.
    """
    _check_references(outputs, references)
    return sum(output in right for output, right in zip(outputs, references)) / len(outputs)


def exact_match_by_group(
    outputs: Sequence[str], references: References, groups: Sequence[str | None]
) -> dict[str, float]:
    """`exact_match` of each group's outputs, the worst group first, equal ones by name. None is in no group."""
    hits: dict[str, list[bool]] = {}
    for output, right, group in zip(outputs, references, groups, strict=True):
        if group is not None:
            hits.setdefault(group, []).append(output in right)
    means = {group: sum(hits) / len(hits) for group, hits in hits.items()}
    return dict(sorted(means.items(), key=lambda item: (item[1], item[0])))


def word_error_rate(outputs: Sequence[str], references: References) -> float:
    """Fraction of words whose transcription equals none of their references: 1 − `exact_match`, each output a word.

    The definition of grapheme-to-phoneme work (SIGMORPHON 2021, Ashby et al.); speech recognition counts edits between
    words instead. Raises as `exact_match`.
    """
    return 1 - exact_match(outputs, references)


def phoneme_error_rate(outputs: Sequence[str], references: References) -> float:
    """Σ edits / Σ phonemes of the references: substitutions, insertions and deletions of phonemes.

    Spaces separate phonemes, as in `HH AH0 L OW1`. An output with several references is held against the one that takes
    the fewest edits; among those, against the longest. Can exceed 1. The edits are counted by `jiwer`.

    Raises:
      ValueError: as `exact_match`; no phoneme in any reference.
      TypeError: as `exact_match`.
    """
    import jiwer  # here, since it takes a while to import

    _check_references(outputs, references)
    # One call for all pairs of an output and a reference: jiwer's overhead is in the call.
    right = [" ".join(text.split()) for each in references for text in each]
    output = [" ".join(text.split()) for text, each in zip(outputs, references) for _ in each]
    edits = [
        sum(
            max(chunk.ref_end_idx - chunk.ref_start_idx, chunk.hyp_end_idx - chunk.hyp_start_idx)
            for chunk in alignment
            if chunk.type != "equal"
        )
        for alignment in jiwer.process_words(right, output).alignments
    ]
    scores = iter(zip(edits, (-len(text.split()) for text in right)))
    closest = [min(itertools.islice(scores, len(each))) for each in references]
    phonemes = -sum(length for _, length in closest)
    if not phonemes:
        raise ValueError("the references have no phonemes, so that there is no error rate")
    return sum(edits for edits, _ in closest) / phonemes


def bleu(outputs: Sequence[str], references: Sequence[str]) -> CorpusScore:
    """BLEU of detokenised text, as the command `sacrebleu` computes it: cased, its own tokenisation (13a).

    n-grams are counted over the whole corpus (Post 2018). One reference for each output; both are flat lists, so that
    none can be nested the wrong way round.

    Raises:
      TypeError: a list of something else than str.
      ValueError: the lists are of different length, or empty.
    """
    from sacrebleu.metrics import BLEU  # here, since it takes a while to import

    return _corpus_score(BLEU(), outputs, references)


def tokenized_bleu(outputs: Sequence[str], references: Sequence[str]) -> CorpusScore:
    """BLEU of text that is tokenised already, as many papers report it: spaces separate tokens.

    Not comparable with `bleu`; case and tokens are those of the text itself. Raises as `bleu`.
    """
    from sacrebleu.metrics import BLEU

    return _corpus_score(BLEU(tokenize="none", force=True), outputs, references)


def chrf(outputs: Sequence[str], references: Sequence[str]) -> CorpusScore:
    """chrF2 (Popović 2015): F-score of character n-grams, spaces not counted. Raises as `bleu`."""
    from sacrebleu.metrics import CHRF

    return _corpus_score(CHRF(), outputs, references)


def bits_per_byte(nats: float, texts: Sequence[str]) -> float:
    """`nats`, the summed loss over `texts`, in bits per byte of their UTF-8: comparable across tokenizers.

    The sum counts what a model predicts besides the text, such as the end of each document; the bytes do not. It is
    loss per token times tokens. Infinite and NaN sums stay so.

    Raises:
      ValueError: the texts have no byte.
    """
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
    if not size:
        raise ValueError("bits per byte of texts without a byte")
    return nats / math.log(2) / size


def _check_references(outputs: Sequence[str], references: References) -> None:
    if not len(outputs):
        raise ValueError("there are no outputs to score")
    if len(outputs) != len(references):
        raise ValueError(f"{len(outputs)} outputs, but references of {len(references)}")
    for number, right in enumerate(references, start=1):
        if isinstance(right, str):
            raise TypeError(f"the references of output {number} must be a list of str, not the str {right!r}")
        if not len(right):
            raise ValueError(f"output {number} has no reference")


def _corpus_score(metric, outputs: Sequence[str], references: Sequence[str]) -> CorpusScore:
    for name, texts in (("outputs", outputs), ("references", references)):
        if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
            raise TypeError(f"{name} must be a flat list of str, one for each sentence")
    if len(outputs) != len(references):
        raise ValueError(f"{len(outputs)} outputs, but {len(references)} references")
    if not len(outputs):
        raise ValueError("there are no outputs to score")
    result = metric.corpus_score(list(outputs), [list(references)])
    return CorpusScore(result.score, str(metric.get_signature()))
