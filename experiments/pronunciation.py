"""The report of cards that turn spelling into phonemes: word and phoneme error rate."""

from __future__ import annotations

from experiments.experiment import Report, Trained


def report(trained: Trained) -> Report:
    """Both error rates of greedy decoding on every held-out split, and samples.

    A word is right if its phonemes are those of any of its pronunciations in the split, as the literature counts; the
    phoneme error rate is held against the nearest one. Each spelling counts once, however many it has.
    """
    from evaluation.text_metrics import exact_match, phoneme_error_rate
    from experiments.reports import decode_splits, show

    metrics: dict[str, float] = {}
    for split, some in decode_splits(trained).items():
        words = 1 - exact_match(some.outputs, some.references)
        phonemes = phoneme_error_rate(some.outputs, some.references)
        metrics |= {
            f"{split}_word_error_rate": words,
            f"{split}_phoneme_error_rate": phonemes,
            f"{split}_words": len(some.sources),
        }
        rates = f"word error rate {words:.2%}, phoneme error rate {phonemes:.2%}"
        print(f"{split}: {rates}, {len(some.sources):,} words; for example")
        show(some)
    return Report(metrics)
