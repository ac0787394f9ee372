"""Experiments that learn from a user's pairs: files of the form they ask for, a tiny model, and what they report."""

import dataclasses
import gzip
import json

import numpy as np
import pytest

from evaluation.evaluate_split import ScoredExample, evaluate_split
from experiments import g2p_cmudict, multi30k_en_de, translate_ko_en
from experiments.experiment import Report
from experiments.reports import show
from inference.translator import Hypothesis, Translator
from train import train

NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight")
SHORT = {"max_source_length": 24, "max_target_length": 24}


def shrunk(module, source, workdir, **data):
    """The experiment on these data with a tiny model, two steps, one shape."""
    experiment = module.experiment()
    config = experiment.config
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    small = {"source": source, "batch_size": 8, "tokens_per_batch": 0, "buckets": 1, "directory": str(workdir / "tfds")}
    return dataclasses.replace(
        experiment,
        config=dataclasses.replace(
            config,
            data=dataclasses.replace(config.data, **(small | data)),
            model=dataclasses.replace(config.model, d_model=16, num_heads=2, d_ff=16, **layers),
            train=dataclasses.replace(config.train, steps=2, evaluate_every=2, save_every=2, log_every=1),
            workdir=str(workdir / "run"),
        ),
    )


def compress(path, lines):
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))


def answering(monkeypatch, answers):
    """Let every model answer as `answers` (source -> output) say, whatever it has learned."""

    def split_hypotheses(self, data, split, progress=None):
        outputs = [answers.get(example["source"], "") for example in data.examples(split)]
        return [[Hypothesis(output, 0.0, True, np.zeros(0, np.int32))] for output in outputs]

    monkeypatch.setattr(Translator, "split_hypotheses", split_hypotheses)


@pytest.mark.slow
def test_multi30k_reads_its_pieces_and_compares_whole_words(tmp_path, monkeypatch, capsys):
    for split in ("train", "valid", "test.2016", "test.coco"):
        compress(tmp_path / f"{split}.en.gz", [f"play@@ house {number} ." for number in NUMBERS * 2])
        compress(tmp_path / f"{split}.de.gz", [f"spiel@@ haus {number} ." for number in NUMBERS * 2])
    compress(tmp_path / "code.gz", ["#version: 0.2", "p l"])  # lies there too, and is no text
    answering(monkeypatch, {f"play@@ house {number} .": f"spielhaus {number} ." for number in NUMBERS[:2]})
    result = train(shrunk(multi30k_en_de, f"parallel:{tmp_path}:en-de", tmp_path))
    assert {name for name in result.metrics if name.endswith("exact_match")} == {
        "validation_exact_match",
        "test_2016_exact_match",
        "test_coco_exact_match",
    }
    assert result.metrics["test_2016_exact_match"] == 4 / 16 and result.metrics["test_2016_sentences"] == 16
    out = capsys.readouterr().out
    assert "->  spielhaus one .  (right)" in out and "not spielhaus four .)" in out


@pytest.mark.slow
def test_g2p_counts_a_word_once_and_any_of_its_pronunciations_as_right(tmp_path, monkeypatch, capsys):
    words = [f"{number.upper()}\t{' '.join(number.upper())}" for number in NUMBERS]
    compress(tmp_path / "g.train.gz", words * 3)
    compress(tmp_path / "g.test.gz", ["READ\tR IY D", "READ\tR EH D", "LEAD\tL IY D", "LIVE\tL IH V", "LIVE\tL AY V"])
    answering(monkeypatch, {"READ": "R EH D", "LEAD": "L IY", "LIVE": "L OH V"})
    result = train(shrunk(g2p_cmudict, f"tsv:{tmp_path}", tmp_path))
    assert result.metrics["test_words"] == 3
    assert result.metrics["test_word_error_rate"] == pytest.approx(2 / 3)
    assert result.metrics["test_phoneme_error_rate"] == pytest.approx(2 / 9)  # a lost D, and a wrong vowel
    assert "not L IH V or L AY V)" in capsys.readouterr().out


@pytest.mark.slow
def test_korean_is_read_as_jamo_and_each_translation_counts(tmp_path, monkeypatch):
    """Two translations of each sentence, the second of which is the answer: half of the examples are right."""
    pairs = [(f"Word {number}.", f"낱말 {number}.") for number in range(60)]
    pairs += [(f"The word {number}.", f"낱말 {number}.") for number in range(60)]
    lines = [f"{english}\t{korean}\tCC-BY 2.0 (France) Attribution" for english, korean in pairs]
    (tmp_path / "kor.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    answering(monkeypatch, {korean: english for english, korean in pairs[60:]})
    result = train(shrunk(translate_ko_en, f"tsv:{tmp_path}/kor.txt:2-1", tmp_path, **SHORT))
    assert result.metrics["validation_exact_match"] == result.metrics["test_exact_match"] == 0.5
    assert result.metrics["test_sentences"] == 6 and 0 < result.metrics["test_bleu"] < 100
    known = json.loads((tmp_path / "run" / "tokenizers" / "tokenizer_source.json").read_text())["characters"]
    assert "낱" not in known and "\u1102" in known  # the initial n


@pytest.mark.slow
def test_the_greedy_outputs_of_a_real_model_come_in_order(tmp_path):
    (tmp_path / "t.txt").write_text("".join(f"{n % 40}\tx{n % 40}\n" for n in range(80)), encoding="utf-8")
    seen = []
    experiment = shrunk(translate_ko_en, f"tsv:{tmp_path}/t.txt", tmp_path, **SHORT)
    train(dataclasses.replace(experiment, report=lambda *given: seen.append(given) or Report({})))
    trained, data, _ = seen[0]
    found = evaluate_split(trained, data, "validation", "pronunciation", with_loss=False)
    lines = [example["source"] for example in data.examples("validation")]
    sources = [each.source for each in found.examples]
    assert sources == list(dict.fromkeys(lines)) and len(lines) > len(sources)
    assert [each.output for each in found.examples] == Translator(trained).lines(sources)


def test_samples_are_from_all_over_the_split(capsys):
    words = [str(number) for number in range(100)]
    show([ScoredExample(word, word, (word,), None) for word in words])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["0", "20", "40", "60", "80"]
    show([ScoredExample("a", "b", ("c", "d"), None)])
    assert capsys.readouterr().out == "  a  ->  b  (not c or d)\n"
