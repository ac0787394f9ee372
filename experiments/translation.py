"""The report of cards that translate: what greedy decoding gives, sentence by sentence."""

from __future__ import annotations

from experiments.experiment import Report, Trained


def report(trained: Trained) -> Report:
    """The part of each held-out split's sentences that come out exactly as a reference has them, and samples.

    Text is compared as the tokenizer gives it back: `@@ ` joined, case and spaces as they were trained on. Exact match
    is low for sentences by nature; it tells a broken run from one that works, and is no substitute for BLEU.
    """
    from evaluation.text_metrics import exact_match
    from experiments.reports import decode_splits, show

    metrics: dict[str, float] = {}
    for split, some in decode_splits(trained).items():
        exact = exact_match(some.outputs, some.references)
        metrics |= {f"{split}_exact_match": exact, f"{split}_sentences": len(some.sources)}
        print(f"{split}: {exact:.2%} of {len(some.sources):,} sentences exactly as a reference has them; for example")
        show(some)
    return Report(metrics)
