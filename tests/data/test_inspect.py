"""The report on a corpus: every number in it can be counted by hand."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from analysis.lengths import plot_lengths
from data.config import DataConfig
from data.inspect import Inspection, histogram, inspect

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "x.train.tsv").write_text("ab\tx\nabcd\txyz\na\txy\n\tq\nabcdefgh\tx\n")
    (tmp_path / "x.valid.tsv").write_text("abz\tx\n\ty\nabcdefghi\tx\n")
    return tmp_path


def report(corpus, **options):
    config = DataConfig(f"tsv:{corpus}/x", batch_size=3, directory=str(corpus / "prepared"), **options)
    return inspect(Inspection(config, picture=str(corpus / "pictures" / "lengths.png")))


def test_the_numbers(corpus):
    lines = report(corpus, max_source_length=5)
    text = "\n".join(lines)
    # Training has "ab", "abcd", "a" and "abcdefgh", each with its end; the blank source is left out.
    assert any(
        line.split()[:2] == ["train", "4"] and "19 tokens of source, 11 tokens of target" in line for line in lines
    )
    assert any(line.split()[:2] == ["validation", "3"] for line in lines)
    assert "lengths of source in training, end of sentence counted: 2 to 9, median 3, 99% at most 5, mean 4.8" in text
    assert "vocabulary of source: 12 ids, special ones counted; 8 occur in training" in text
    # z and i of 12 characters; y is known to the target.
    assert "83.333% covered: 2 tokens unknown, 0 not in training" in text and "100.000% covered" in text
    assert "when prepared: 1 training pairs with a blank side left out" in text
    assert "1 of 4 left out: 1 over 5 tokens of source and 0 over 4 tokens of target" in text
    assert "1 of 3 cut: 1 over 5 tokens of source" in text
    # One batch of the three that are left: 10 tokens in 15 places, and 9 in 12.
    assert f"padding: {1 - 19 / 27:.1%} of the 27 tokens in a training batch, on average; shapes: 3×5×4" in text
    shown = [line.strip() for line in lines if "->" in line]
    assert sorted(shown[:3]) == ["'a' -> 'xy'", "'ab' -> 'x'", "'abcd' -> 'xyz'"]
    assert (corpus / "pictures" / "lengths.png").read_bytes().startswith(b"\x89PNG")


def test_text_and_what_training_never_shows(tmp_path):
    (tmp_path / "train.txt").write_text("abcab" * 4)
    (tmp_path / "valid.txt").write_text("abxx")
    config = DataConfig(
        f"text:{tmp_path}", batch_size=2, max_target_length=8, tokenizer="bytes", directory=str(tmp_path / "prepared")
    )
    text = "\n".join(inspect(Inspection(config, picture="")))
    assert "vocabulary of text: 260 ids" in text and "3 occur in training" in text
    assert "50.000% covered: 0 tokens unknown, 2 not in training" in text
    assert "cut into rows of 8 tokens" in text and "21 tokens of text" in text


def test_a_histogram_counts_everything_once():
    lengths = np.array([3, 3, 4, 90, 17, 17])
    bins = histogram(lengths)
    assert len(bins) <= 12 and sum(count for *_, count in bins) == 6
    for first, last, count in bins:
        assert count == sum(first <= n <= last for n in lengths)
    assert all(one[1] + 1 == other[0] for one, other in itertools.pairwise(bins))
    assert histogram(np.array([5, 5])) == [(5, 5, 2)]


def test_the_same_lengths_give_the_same_picture(tmp_path):
    for name in ("x.png", "y.png"):
        plot_lengths({"source": np.array([1, 2, 2, 900]), "target": np.array([5])}, tmp_path / name)
    assert (tmp_path / "x.png").read_bytes() == (tmp_path / "y.png").read_bytes()


def test_the_command_line(corpus):
    def run(*words):
        environment = os.environ | {"TFDS_DATA_DIR": str(corpus / "prepared")}
        command = [sys.executable, "-m", "data.inspect", *words]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)

    result = run(f"tsv:{corpus}/x", "--data.batch_size=2", "--data.shared_vocabulary", "True", "--picture", "")
    assert result.returncode == 0, result.stderr
    assert "vocabulary of target: 15 ids" in result.stdout and "batch 1: 2×9 and 2×4" in result.stdout
    for words, code, complaint in (
        ([f"tsv:{corpus}/x", "--data.tokeniser", "bpe"], 2, "perhaps you meant --data.tokenizer"),
        ([f"tsv:{corpus}/y"], 1, "is no file"),
    ):
        result = run(*words)
        assert result.returncode == code and result.stdout == ""
        assert result.stderr.count("\n") == 1 and complaint in result.stderr
