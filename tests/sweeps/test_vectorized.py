"""Trials as members of one program: the same losses as runs of their own, the same files, the same resumption."""

import dataclasses
import json
import shlex

import numpy as np
import optax
import pytest
from optuna.trial import TrialState

from cli.options import with_options
from experiments import reverse
from sweeps import options as sweep_options
from sweeps.options import parse_sweep
from sweeps.study import Study
from sweeps.vectorized import run_vectorized
from train import train
from workdir.metric_writer import read_metrics
from workdir.restore import load_run

SMALL = shlex.split(
    "--model.d_model 16 --model.num_heads 2 --model.d_ff 16 --data.batch_size 8 --train.steps 12 --train.log_every 1 "
    "--train.evaluate_every 6 --train.save_every 4"
)


def sweep(directory, *words):
    return parse_sweep("python sweep.py", ["reverse", *SMALL, "--vectorize", *words, "--workdir", str(directory)])


def alone(study, number, directory):
    """The losses of the same trial as a run of its own, and its last validation metrics."""
    trial = study.trials()[number]
    config = study.sweep.experiment.config
    values = trial.params | {"train.seed": study.seed(number), "workdir": str(directory)}
    result = train(dataclasses.replace(study.sweep.experiment, config=with_options(config, values)))
    return [row["loss"] for row in read_metrics(directory) if row["split"] == "train"], result.metrics


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Six trials, one of which diverges: its study and its directory."""
    directory = tmp_path_factory.mktemp("vectorized") / "sweep"
    space = ["--space", "optimizer.peak_lr=1e-3,1e30,1e-2", "train.seed=3,4", "--model.dropout", "0.1"]
    study = Study(sweep(directory, "--sampler", "grid", *space))
    run_vectorized(study)
    return study, directory


@pytest.mark.slow
def test_a_trial_has_the_losses_of_its_own_run_whatever_its_neighbours_do(finished, tmp_path):
    study, directory = finished
    assert [trial.state for trial in study.trials()] == [
        *[TrialState.COMPLETE] * 2,
        *[TrialState.FAIL] * 2,  # the learning rate of 1e30
        *[TrialState.COMPLETE] * 2,
    ]
    assert "at step" in study.trials()[2].user_attrs["reason"]
    for number in (0, 5):
        rows = read_metrics(directory / "trials" / f"{number:04d}")
        own, metrics = alone(study, number, tmp_path / str(number))
        losses = [row["loss"] for row in rows if row["split"] == "train"]
        assert len(losses) == 12
        np.testing.assert_allclose(losses[:10], own[:10], rtol=1e-5)
        assert study.trials()[number].value == pytest.approx(metrics["validation_loss"], rel=1e-4)
    assert len({trial.value for trial in study.trials()}) == 5  # None, and four that differ


@pytest.mark.slow
def test_a_trial_leaves_a_run_that_can_be_used(finished):
    _, directory = finished
    run = load_run(directory / "trials" / "0004")
    config = json.loads((directory / "trials" / "0004" / "config.json").read_text())
    assert config["optimizer"]["peak_lr"] == 1e-2 and config["train"]["seed"] == 3
    params = run.select_params("last").params
    assert params["encoder"]["feed_forward"]["hidden"]["kernel"].shape == (1, 16, 16)
    rows = read_metrics(directory / "trials" / "0004")
    assert [row["step"] for row in rows if row["split"] == "validation"] == [6, 12]


@pytest.mark.slow
def test_hyperparameters_of_every_kind_can_differ(tmp_path):
    """With options that one trial leaves out and another has."""
    space = "optimizer.weight_decay=0.0,0.5 optimizer.clip_norm=0.0,0.1 train.label_smoothing=0.0,0.2"
    study = Study(sweep(tmp_path / "sweep", "--sampler", "grid", "--space", *space.split()))
    run_vectorized(study)
    assert len({trial.value for trial in study.trials()}) == 8
    for number in (0, 7):
        rows = read_metrics(tmp_path / "sweep" / "trials" / f"{number:04d}")
        own, _ = alone(study, number, tmp_path / str(number))
        np.testing.assert_allclose([r["loss"] for r in rows if r["split"] == "train"][:10], own[:10], rtol=1e-5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--space", "model.d_model=16,32"], "model.d_model makes another program"),
        (["--space", "train.steps=10,20"], "train.steps makes another program"),
        (["--pruner", "median"], "leave --pruner out"),
    ],
)
def test_what_cannot_be_one_program_is_refused(words, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        parse_sweep("python sweep.py", ["reverse", "--vectorize", *words, "--workdir", str(tmp_path)])


def test_seeds_want_batches_of_one_shape(tmp_path):
    words = ["--data.buckets", "3", "--space", "train.seed=0,1", "--sampler", "grid"]
    with pytest.raises(ValueError, match=r"--data\.buckets 1"):
        run_vectorized(Study(sweep(tmp_path / "sweep", *words)))


def test_functions_that_do_not_take_the_hyperparameters_are_found_out(tmp_path, monkeypatch):
    """An optimizer that reads the learning rate from the config would give all trials the first one's."""

    def from_the_config(config):
        return lambda hyper, learning_rate: optax.sgd(config.optimizer.peak_lr)

    def loaded(name):
        return dataclasses.replace(reverse.experiment(), optimizer=from_the_config), ""

    monkeypatch.setattr(sweep_options, "load_experiment", loaded)
    study = Study(sweep(tmp_path / "sweep", "--sampler", "grid", "--space", "optimizer.peak_lr=1e-3,1e-2"))
    with pytest.raises(ValueError, match=r"read optimizer\.peak_lr from the config"):
        run_vectorized(study)
    assert study.unfinished() == 2
