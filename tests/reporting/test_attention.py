"""The command that shows where a trained model attends."""

import dataclasses

import pytest

from experiments import reverse
from experiments.experiment import Config, Experiment
from model.config import LanguageModelConfig
from reporting.attention import main
from tests.analysis.test_attention_page import data_of
from tests.scripts import in_this_process
from train import train


def test_an_encoder_decoder(spelling_run, tmp_path, monkeypatch):
    output = tmp_path / "maps"
    done = in_this_process(monkeypatch, main, spelling_run, "abc", "--output", output)
    kinds = ["encoder_self_attention", "decoder_self_attention", "decoder_cross_attention"]
    paths = [output / "attention.html", *(output / f"{kind}_layer_1.png" for kind in kinds)]
    assert done.code == 0 and done.out.splitlines() == [str(path) for path in paths], done
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths[1:])
    data = data_of(paths[0].read_text(encoding="utf-8"))
    assert data["title"] == "abc" and list(data["kinds"]) == [kind.replace("_", " ") for kind in kinds]
    cross = data["kinds"]["decoder cross attention"]
    assert cross["keys"] == ["a", "b", "c", "end"] and cross["queries"] == [*"A B C", "end"]
    assert cross["shape"] == [1, 2, 6, 4]


def test_a_language_model(text_run, tmp_path, monkeypatch):
    assert (text_run / "figures" / "attention.png").exists()  # drawn at the end of training, for the run's page
    done = in_this_process(monkeypatch, main, text_run, "the cat", "--output", tmp_path, "--checkpoint", "last")
    assert done.code == 0, done
    data = data_of((tmp_path / "attention.html").read_text(encoding="utf-8"))
    assert data["kinds"]["self attention"]["keys"] == ["begin", *"the cat"]


@pytest.mark.parametrize(
    ("text", "message", "code"),
    [
        ("abc" * 30, "the text has 90 tokens, the model reads at most", 1),
        (" ", "the text is blank", 1),
        ("--output", "wanted a run's directory and a text", 2),
    ],
)
def test_a_text_that_cannot_be_read(spelling_run, tmp_path, monkeypatch, text, message, code):
    monkeypatch.chdir(tmp_path)
    done = in_this_process(monkeypatch, main, spelling_run, text)
    assert done.code == code and message in done.err and done.err.count("\n") == 1, done
    assert list(tmp_path.iterdir()) == []


def test_a_text_that_is_cut_inside_a_character(tmp_path):
    """The picture at the end of training takes as many tokens as the model reads, here seven of two bytes a letter."""
    (tmp_path / "text.txt").write_text("éà" * 200, encoding="utf-8")
    base = reverse.experiment()
    data = dataclasses.replace(
        base.config.data,
        source=f"text:{tmp_path}/text.txt",
        tokenizer="bytes",
        batch_size=4,
        max_target_length=8,
    )
    model = LanguageModelConfig(d_model=8, num_heads=1, d_ff=8, num_layers=1, max_length=8, dropout=0.0)
    settings = dataclasses.replace(base.config.train, steps=1, evaluate_every=1, save_every=1)
    config = Config(data, model, base.config.optimizer, settings, str(tmp_path / "run"))
    assert train(Experiment("bytes", config)).figures["attention"].exists()
