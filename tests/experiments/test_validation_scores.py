"""A card's own validation metrics: measured at each evaluation, and the best checkpoint kept by them."""

import dataclasses

import pytest

from experiments.validation_scores import greedy_bleu
from tests.small_runs import spelling, spelling_corpus
from train import train
from training.metrics import read_metrics
from workdir.result import open_checkpoints
from workdir.run_directory import RunDirectory


@pytest.mark.slow
def test_the_best_checkpoint_by_bleu(tmp_path):
    settings = {"steps": 6, "evaluate_every": 2, "save_every": 2, "max_to_keep": 1, "best_metric": "bleu"}
    experiment = spelling(tmp_path / "run", spelling_corpus(tmp_path), **settings)
    with pytest.raises(
        ValueError, match=r"train\.best_metric=bleu is no validation metric of this experiment: accuracy, ex"
    ):
        train(
            dataclasses.replace(experiment, config=dataclasses.replace(experiment.config, workdir=str(tmp_path / "x")))
        )
    falling = iter((3.0, 2.0, 1.0))
    card = dataclasses.replace(experiment, scores=lambda trained: greedy_bleu(trained) | {"bleu": next(falling)})
    result = train(card)
    assert result.metrics["validation_bleu"] == 1.0
    assert [row["bleu"] for row in read_metrics(tmp_path / "run") if row["split"] == "validation"] == [3.0, 2.0, 1.0]
    with open_checkpoints(card, RunDirectory(tmp_path / "run")) as checkpoints:
        assert (checkpoints.steps(), checkpoints.best()) == ([2, 6], (2, 3.0))
    assert 0 <= greedy_bleu_of(card, result) <= 100


def greedy_bleu_of(card, result) -> float:
    from data.loading import load
    from data.spec import spec_of
    from experiments.experiment import Trained

    data = load(card.config.data)
    trained = Trained(result.model, result.params, data.tokenizers, spec_of(data), card.config, data, result.workdir)
    return greedy_bleu(trained)["bleu"]
