"""Search spaces: what can be typed, and what is refused in one line."""

import dataclasses

import pytest

from experiments import dates, reverse
from experiments.experiment import Experiment
from experiments.search_space import Choice, Integer, LogUniform, Uniform, parse_space

CONFIG = dates.experiment().config


def test_each_form_is_parsed_with_the_type_of_its_option():
    words = [
        "optimizer.peak_lr=log:1e-4:1e-2",
        "model.dropout=uniform:0:0.3",
        "optimizer.warmup_steps=int:10:500",
        "model.d_model=64,128",
        "optimizer.schedule=cosine,linear",
        "model.num_kv_heads=None,1",
        "train.seed=0,1,2",
    ]
    assert parse_space(words, CONFIG) == {
        "optimizer.peak_lr": LogUniform(1e-4, 1e-2),
        "model.dropout": Uniform(0.0, 0.3),
        "optimizer.warmup_steps": Integer(10, 500),
        "model.d_model": Choice(64, 128),
        "optimizer.schedule": Choice("cosine", "linear"),
        "model.num_kv_heads": Choice(None, 1),
        "train.seed": Choice(0, 1, 2),
    }


def test_what_is_printed_can_be_typed():
    words = ["optimizer.peak_lr=log:0.0001:0.01", "model.dropout=uniform:0.0:0.3", "model.d_model=64,128"]
    words += ["optimizer.warmup_steps=int:10:500"]
    assert [f"{name}={values}" for name, values in parse_space(words, CONFIG).items()] == words


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("optimizer.peek_lr=1", "unknown option optimizer.peek_lr; perhaps you meant optimizer.peak_lr"),
        ("peak_lr=1", "unknown option peak_lr; perhaps you meant optimizer.peak_lr"),
        ("model.d_model=64,wide", "must be a whole number, got 'wide'"),
        ("model.d_model=log:1:2", "must be a whole number, got numbers, log:1.0:2.0"),
        ("optimizer.schedule=int:1:2", "must be one of 'noam', 'cosine', 'linear', 'constant', got whole numbers"),
        ("optimizer.peak_lr=log:1e-2:1e-4", "log:0.01:0.0001 wants 0 < low < high"),
        ("optimizer.peak_lr=log:0:1", "wants 0 < low < high"),
        ("optimizer.peak_lr=log:1e-4", "wanted log:LOW:HIGH with two numbers, got 'log:1e-4'"),
        ("optimizer.warmup_steps=int:1:2.5", "wanted int:LOW:HIGH with two whole numbers"),
        ("model.d_model=64,64", "wants values that differ"),
        ("model.d_model", "wants option=values"),
        ("model.d_model=", "wants option=values"),
        ("workdir=a,b", "workdir is not searched, since each trial has a directory of its own"),
        ("train.best_metric=loss,accuracy", "train.best_metric is not searched, since trials are compared by it"),
    ],
)
def test_what_is_wrong_is_named(word, message):
    with pytest.raises(ValueError) as error:
        parse_space([word], CONFIG)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_an_option_twice_is_refused():
    with pytest.raises(ValueError, match=r"--space has model\.d_model twice"):
        parse_space(["model.d_model=1,2", "model.d_model=3"], CONFIG)


def test_an_experiment_declares_a_space_that_fits_its_options():
    base = reverse.experiment()
    assert Experiment("x", base.config, space={"optimizer.peak_lr": LogUniform(1e-4, 1e-2)}).space
    with pytest.raises(ValueError, match=r"unknown option optimizer\.lr"):
        dataclasses.replace(base, space={"optimizer.lr": LogUniform(1e-4, 1e-2)})
    with pytest.raises(ValueError, match=r"model\.d_model must be a whole number, got 64\.5"):
        dataclasses.replace(base, space={"model.d_model": Choice(64.5)})
