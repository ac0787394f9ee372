"""BLEU and chrF of a corpus, by sacreBLEU, each with the signature that says how it was counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class CorpusScore(NamedTuple):
    """One number and how to get it again."""

    score: float
    """0 to 100."""
    signature: str
    """sacreBLEU's: references, case, tokenisation, smoothing, version."""


def bleu(outputs: Sequence[str], references: Sequence[str]) -> CorpusScore:
    """BLEU of detokenised text, as the command `sacrebleu` gives it: cased, its own tokenisation (13a).

    A corpus's BLEU: n-grams are counted over all sentences. One reference for each output; both are flat lists, so that
    none can be nested the wrong way round.

    Raises:
      TypeError: a list of something else than str.
      ValueError: the lists are of different length, or empty.
    """
    from sacrebleu.metrics import BLEU  # here, since only who scores needs to wait for it

    return _score(BLEU(), outputs, references)


def tokenized_bleu(outputs: Sequence[str], references: Sequence[str]) -> CorpusScore:
    """BLEU of text that is tokenised already, as many papers report it: words are what stands between spaces.

    Not comparable with `bleu`; case and tokens are those of the text itself. Raises as `bleu`.
    """
    from sacrebleu.metrics import BLEU

    return _score(BLEU(tokenize="none", force=True), outputs, references)


def chrf(outputs: Sequence[str], references: Sequence[str]) -> CorpusScore:
    """chrF2: F-score of character n-grams, spaces not counted. Raises as `bleu`."""
    from sacrebleu.metrics import CHRF

    return _score(CHRF(), outputs, references)


def _score(metric, outputs: Sequence[str], references: Sequence[str]) -> CorpusScore:
    for name, texts in (("outputs", outputs), ("references", references)):
        if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
            raise TypeError(f"{name} must be a flat list of str, one for each sentence")
    if len(outputs) != len(references):
        raise ValueError(f"{len(outputs)} outputs, but {len(references)} references")
    if not len(outputs):
        raise ValueError("there are no outputs to score")
    result = metric.corpus_score(list(outputs), [list(references)])
    return CorpusScore(result.score, str(metric.get_signature()))
