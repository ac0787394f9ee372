"""An experiment's own validation metrics: measured at each evaluation, and the best checkpoint kept by them."""

import dataclasses

import pytest

from data.loading import load
from data.spec import spec_of
from experiments.reports import decoded_metrics, no_report
from inference.trained_model import TrainedModel
from tests.small_runs import spelling, spelling_corpus
from train import train
from workdir.metric_writer import read_metrics
from workdir.run_directory import RunDirectory
from workdir.train_state import open_checkpoints


@pytest.mark.slow
def test_the_best_checkpoint_by_bleu(tmp_path):
    settings = {"steps": 6, "evaluate_every": 2, "save_every": 2, "max_to_keep": 1, "best_metric": "bleu"}
    experiment = spelling(tmp_path / "run", spelling_corpus(tmp_path), **settings)
    elsewhere = dataclasses.replace(experiment.config, workdir=str(tmp_path / "x"))
    with pytest.raises(
        ValueError, match=r"train\.best_metric=bleu is no validation metric of this experiment: accuracy, ex"
    ):
        train(dataclasses.replace(experiment, config=elsewhere))
    falling, greedy_bleu = iter((3.0, 2.0, 1.0)), decoded_metrics("translation", "bleu")
    experiment = dataclasses.replace(
        experiment,
        validation_metrics=lambda trained, data: greedy_bleu(trained, data) | {"bleu": next(falling)},
        report=no_report,
    )
    result = train(experiment)
    assert result.metrics["validation_bleu"] == 1.0
    assert [row["bleu"] for row in read_metrics(tmp_path / "run") if row["split"] == "validation"] == [3.0, 2.0, 1.0]
    with open_checkpoints(experiment, RunDirectory(tmp_path / "run")) as checkpoints:
        assert (checkpoints.steps(), checkpoints.best()) == ([2, 6], (2, 3.0))
    data = load(experiment.config.data)
    trained = TrainedModel(result.model, result.params, data.tokenizers, spec_of(data))
    assert 0 <= greedy_bleu(trained, data)["bleu"] <= 100
