"""Curves: the right numbers, the same file every time, and a font for Hangul."""

import math
import warnings

import matplotlib.image
import numpy as np
import pytest

from analysis import fonts
from analysis.curves import training_curves

ROWS = [
    {"step": 0, "split": "validation", "loss": 4.0, "exact_match": 0.0},
    {"step": 10, "split": "train", "loss": 3.0, "learning_rate": 1e-4, "accuracy": 0.2},
    {"step": 20, "split": "train", "loss": 2.0, "learning_rate": 2e-4, "accuracy": 0.4},
    {"step": 20, "split": "validation", "loss": 2.5, "exact_match": 0.1},
]


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def shades(path):
    return len(np.unique(matplotlib.image.imread(path)[..., 0]))


def test_curves_hold_the_numbers(tmp_path):
    figure = training_curves(ROWS, tmp_path / "figures" / "curves.png")
    assert shades(tmp_path / "figures" / "curves.png") > 50  # not blank
    loss, fraction, rate = figure.axes
    assert [axis.get_ylabel() for axis in figure.axes] == ["loss (nats per token)", "fraction correct", "learning rate"]
    assert rate.get_xlabel() == "step"
    lines = {line.get_label(): line.get_xydata().tolist() for line in loss.lines}
    assert lines == {"train": [[10, 3.0], [20, 2.0]], "validation": [[0, 4.0], [20, 2.5]]}
    lines = {line.get_label(): line.get_xydata().tolist() for line in fraction.lines}
    assert lines == {"train: accuracy": [[10, 0.2], [20, 0.4]], "validation: exact match": [[0, 0.0], [20, 0.1]]}
    assert rate.lines[0].get_xydata().tolist() == [[10, 1e-4], [20, 2e-4]]
    assert loss.get_yscale() == "linear"


def test_a_loss_that_falls_far_is_drawn_on_a_log_axis(tmp_path):
    rows = [{"step": step, "split": "train", "loss": 4.0 * math.exp(-step)} for step in range(1, 8)]
    figure = training_curves(rows, tmp_path / "curves.png")
    assert [axis.get_yscale() for axis in figure.axes] == ["log"]


@pytest.mark.parametrize("rows", [[], [{"step": 1, "split": "train", "loss": math.nan, "learning_rate": 0.0}]])
def test_curves_of_a_run_without_numbers(tmp_path, rows):
    training_curves(rows, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").exists()


def test_the_same_numbers_give_the_same_file(tmp_path):
    for name in ("a.png", "b.png"):
        training_curves(ROWS, tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_without_the_hangul_font_one_line_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(fonts, "HANGUL_PACKAGE", "no_such_package")
    fonts.font_families.cache_clear()
    try:
        with pytest.warns(UserWarning) as caught:
            training_curves(ROWS, tmp_path / "curves.png")
        assert [str(warning.message) for warning in caught] == ["figures cannot draw Hangul: install no-such-package"]
        training_curves(ROWS, tmp_path / "curves.png")  # and does not say it again
    finally:
        fonts.font_families.cache_clear()
