"""Cards on data that are not their own: every report works on whatever the model can learn from."""

import dataclasses
from fractions import Fraction

import jax
import pytest

from data.config import DataConfig
from data.loading import load, load_mixture
from data.prepare import prepare
from data.spec import spec_of
from evaluation.evaluate_split import evaluate_split
from experiments import dates, shakespeare_char
from experiments.experiment import Config, check_data_matches_model, standard_model
from experiments.registry import list_experiments, load_experiment
from experiments.reports import task_report
from inference.trained_model import TrainedModel
from inference.translator import Translator
from model.config import LanguageModelConfig, TransformerConfig
from tests.data.in_memory import builder_of
from training.config import OptimizerConfig, TrainConfig

PAIRS = (dates.report, task_report("pronunciation"), task_report("translation"))
TEXT = (task_report("language_modeling"), shakespeare_char.report)
SMALL = {"d_model": 16, "num_heads": 2, "d_ff": 16, "dropout": 0.0}


def untrained(data, folder, **model):
    if "text" in data.tokenizers:
        model = LanguageModelConfig(num_layers=1, max_length=16, **SMALL)
    else:
        model = TransformerConfig(num_encoder_layers=1, num_decoder_layers=1, max_length=80, **SMALL)
    config = Config(data.config, model, OptimizerConfig(), TrainConfig(steps=1), str(folder))
    model = standard_model(config, data.vocab_sizes)
    inputs = data.blank_batches()[0]["inputs"]
    params = jax.jit(lambda inputs: model.init(jax.random.key(0), **inputs)["params"])(inputs)
    return TrainedModel(model, params, data.tokenizers, spec_of(data))


def file(folder, name, rows):
    (folder / name).write_text("".join("\t".join(row) + "\n" for row in rows))


def test_the_reports_of_all_experiments_are_here():
    assert {load_experiment(name)[0].report for name in list_experiments()} <= {None, *PAIRS, *TEXT}


def test_pairs_without_a_test_split_or_with_blank_answers(tmp_path, capsys):
    file(tmp_path, "x_train.tsv", [("one", "w a n"), ("two", "t u")])
    file(tmp_path, "x_dev.tsv", [("one", "w a n"), ("six", "s i k s"), (" ", "s")])
    file(tmp_path, "x_test.tsv", [("one", ""), ("two", "")])
    config = DataConfig(f"tsv:{tmp_path}/x", batch_size=2, directory=str(tmp_path / "prepared"))
    data = load(config)
    trained = untrained(data, tmp_path)
    written = Translator(trained).split(data, "validation")
    assert all(written[:2]) and written[2] == ""  # nothing is made up for nothing, as by generate.py
    names = [set(report(trained, data, tmp_path).metrics) for report in PAIRS]
    names = [{name.removeprefix("validation_") for name in each} for each in names]
    assert names[0] == {"exact_match", "examples"}
    assert names[1] == {"exact_match", "word_error_rate", "phoneme_error_rate", "words"}
    assert names[2] == {"exact_match", "bleu", "chrf", "sentences"}
    assert capsys.readouterr().out.count("test: not scored, since all its targets are blank\n") == 3


@pytest.mark.slow
def test_dates_mixed_with_something_else(tmp_path, monkeypatch, capsys):
    """Dates alone count as dates, in the experiment's report and in evaluate.py's exact match by language."""
    rows = [(line, "2026-11-30", language) for line, language in zip(dates.SHOWN, ("ko", "en", "ar", "am", "eu", "de"))]
    few = builder_of(
        tmp_path / "prepared", dict.fromkeys(("train", "validation", "test"), rows), ("source", "target", "language")
    )
    file(tmp_path, "x.tsv", [(f"s{n}", f"t{n}") for n in range(100)])
    other = prepare(f"tsv:{tmp_path}/x.tsv", str(tmp_path / "prepared"))
    config = DataConfig("mixed", batch_size=2)
    data = load_mixture([(other, Fraction(1, 2)), (few, Fraction(1, 2))], config)
    trained = untrained(data, tmp_path)
    monkeypatch.setattr("analysis.attention.attention_map", lambda *arguments: None)  # takes seconds
    metrics = dates.report(trained, data, tmp_path).metrics
    assert metrics["test_examples"] == 6 and metrics["languages"] == 6
    assert "test: 5 examples of other sources are not counted" in capsys.readouterr().out
    found = evaluate_split(trained, data, "test", "exact_match", group="language").metrics
    assert set(found["exact_match_by_group"]) == {"ko", "en", "ar", "am", "eu", "de"} and found["examples"] == 11


def test_text_without_a_test_split(tmp_path, monkeypatch):
    (tmp_path / "x.txt").write_text("the cat sat. " * 40)
    config = DataConfig(
        f"text:{tmp_path}/x.txt", batch_size=2, max_target_length=16, directory=str(tmp_path / "prepared")
    )
    data = load(config)
    trained = untrained(data, tmp_path)
    names = {"nats", "perplexity", "bits_per_byte", "perplexity_per_word", "documents"}
    for report in TEXT:
        assert set(report(trained, data, tmp_path).metrics) == {f"validation_{name}" for name in names}
    # Beside nanoGPT's number only on nanoGPT's text.
    monkeypatch.setattr(shakespeare_char, "CHARACTERS", 52)
    assert "nanogpt_validation_nats" in shakespeare_char.report(trained, data, tmp_path).metrics


@pytest.mark.parametrize(
    ("name", "sides", "has"), [("dates", ("text",), "is text"), ("lm1b", ("source", "target"), "is pairs")]
)
def test_data_of_the_other_kind_are_refused(name, sides, has):
    experiment, _ = load_experiment(name)
    config = dataclasses.replace(experiment.config, data=dataclasses.replace(experiment.config.data, source="x:y"))
    experiment = dataclasses.replace(experiment, config=config)
    with pytest.raises(ValueError, match=f"data.source x:y {has}.*; {name} learns from"):
        check_data_matches_model(experiment, sides)
    check_data_matches_model(experiment, {"source", "target", "text"} - set(sides))
