"""Scores of decoded text on the validation split, for a card that wants its best checkpoint by them.

Experiment(..., scores=greedy_bleu)        and train.best_metric=bleu

Which way each is better stands in `experiments.experiment.STANDARD_METRICS`.
"""

from __future__ import annotations

from experiments.experiment import Trained


def greedy_bleu(trained: Trained) -> dict[str, float]:
    """sacreBLEU's BLEU of greedy outputs for the whole validation split, as {"bleu": 0 to 100}."""
    from evaluation.corpus_bleu import bleu
    from inference.translator import Translator

    canonical = trained.tokenizers["target"].canonical
    targets = [canonical(example["target"]) for example in trained.data.examples("validation")]
    return {"bleu": bleu(Translator(trained).split(trained.data, "validation"), targets).score}
