"""Scores of outputs against references, corpus-wide: exact match, error rates, bits per byte.

Texts are compared as they are. Whoever wants case, punctuation or tokenisation ignored normalises both sides first.
A corpus's score is never the mean of its sentences' scores: errors and lengths are added, and divided once.
"""

import itertools
import math
from collections.abc import Sequence

References = Sequence[Sequence[str]]
"""For each output all right answers, at least one."""


def exact_match(outputs: Sequence[str], references: References) -> float:
    """The part of `outputs` that equal one of their references.

    One minus this is what grapheme-to-phoneme work calls its word error rate: the part of words that are wrong.
    Raises as `word_error_rate`.
    """
    _check(outputs, references)
    return sum(output in right for output, right in zip(outputs, references)) / len(outputs)


def word_error_rate(outputs: Sequence[str], references: References) -> float:
    """Σ edits / Σ words of the reference: substitutions, insertions and deletions of words, which spaces separate.

    An output with several references is held against the one that takes the fewest edits; among those, against the
    longest. Can exceed 1. The edits are counted by `jiwer`.

    Raises:
      ValueError: no outputs, another number of references, an output without reference, or no word in any reference.
      TypeError: the references of an output are one string and not a list of them.
    """
    return _error_rate(outputs, references)


def phoneme_error_rate(outputs: Sequence[str], references: References) -> float:
    """`word_error_rate` of transcriptions whose phonemes spaces separate, as `HH AH0 L OW1`."""
    return _error_rate(outputs, references)


def bits_per_byte(nats: float, texts: Sequence[str]) -> float:
    """`nats`, the summed loss over `texts`, in bits for each byte of them in UTF-8: the same for every tokenizer.

    The sum counts what a model predicts besides the text, such as the end of each document; the bytes do not. It is
    loss per token times tokens. Infinite and NaN sums stay so.

    Raises:
      ValueError: the texts have no byte.
    """
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
    if not size:
        raise ValueError("bits per byte of texts without a byte")
    return nats / math.log(2) / size


def _error_rate(outputs: Sequence[str], references: References) -> float:
    import jiwer  # here, since reports without error rates need not wait for it

    _check(outputs, references)
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
    words = -sum(length for _, length in closest)
    if not words:
        raise ValueError("the references have no words, so that there is no error rate")
    return sum(edits for edits, _ in closest) / words


def _check(outputs: Sequence[str], references: References) -> None:
    if not len(outputs):
        raise ValueError("there are no outputs to score")
    if len(outputs) != len(references):
        raise ValueError(f"{len(outputs)} outputs, but references of {len(references)}")
    for number, right in enumerate(references, start=1):
        if isinstance(right, str):
            raise TypeError(f"the references of output {number} must be a list of str, not the str {right!r}")
        if not len(right):
            raise ValueError(f"output {number} has no reference")
