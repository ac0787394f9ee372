"""Attention maps: every head with its numbers, axes named, Hangul drawn."""

import itertools
import warnings

import matplotlib.image
import numpy as np
import pytest

from analysis.attention import attention_map

KOREAN = [*"2026년 11월 30일 월요일", "<eos>"]
ISO = [*"2026-11-30", "<eos>"]


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # "Glyph ... missing" among them
        yield


def uniform(heads, targets, sources):
    return np.full((heads, len(targets), len(sources)), 1.0 / len(sources), np.float32)


def shades(path):
    return len(np.unique(matplotlib.image.imread(path)[..., 0]))


def test_attention_map_draws_hangul_and_names_its_axes(tmp_path):
    path = tmp_path / "figures" / "attention.png"
    figure = attention_map(uniform(4, ISO, KOREAN), KOREAN, ISO, path, "2026년 11월 30일")
    panels = [axis for axis in figure.axes if axis.images and axis.get_title()]
    assert [axis.get_title() for axis in panels] == ["head 1", "head 2", "head 3", "head 4", "mean of 4 heads"]
    for axis in panels:
        assert [label.get_text() for label in axis.get_xticklabels()] == [token.replace(" ", "␣") for token in KOREAN]
        assert [label.get_text() for label in axis.get_yticklabels()] == ISO
    assert figure.get_supxlabel() == "key: source token" and figure.get_supylabel() == "query: target token"
    assert shades(path) > 50


def test_hangul_is_drawn_from_the_hangul_font(tmp_path):
    def picture(token):
        path = tmp_path / f"{ord(token)}.png"
        attention_map(np.ones((1, 1, 1)), [token], ["x"], path, "")
        return matplotlib.image.imread(path)

    # Two syllables look different: neither is the box that stands for a missing glyph.
    assert not np.array_equal(picture("월"), picture("요"))


def test_attention_map_shows_each_head_and_the_mean(tmp_path):
    weights = np.zeros((2, 2, 3), np.float32)
    weights[0, :, 0] = 1.0
    weights[1, 0, 2] = weights[1, 1, 1] = 1.0
    text = "$_$"  # as a formula it would be a syntax error
    figure = attention_map(weights, ["a", "b", text], ["c", text], tmp_path / "a.png", text)
    drawn = [np.asarray(axis.images[0].get_array()) for axis in figure.axes if axis.images and axis.get_title()]
    np.testing.assert_array_equal(drawn[0], weights[0])
    np.testing.assert_array_equal(drawn[1], weights[1])
    np.testing.assert_array_equal(drawn[2], [[0.5, 0.0, 0.5], [0.5, 0.5, 0.0]])


@pytest.mark.parametrize("length, heads", [(40, 4), (5, 1)])
def test_tokens_do_not_overlap(tmp_path, length, heads):
    sources, targets = ["W"] * length, ["8"] * 12
    figure = attention_map(uniform(heads, targets, sources), sources, targets, tmp_path / "a.png", "long")
    renderer = figure.canvas.get_renderer()
    axis = figure.axes[0]
    for labels, sides in ((axis.get_xticklabels(), ("x0", "x1")), (axis.get_yticklabels(), ("y0", "y1"))):
        boxes = sorted([getattr(label.get_window_extent(renderer), side) for side in sides] for label in labels)
        assert all(left[1] <= right[0] + 1 for left, right in itertools.pairwise(boxes))


@pytest.mark.parametrize("shape", [(2, 3), (4, 3, 2), (4, 2, 4)])
def test_weights_that_do_not_fit_the_tokens_are_refused(tmp_path, shape):
    with pytest.raises(ValueError, match=r"wanted \(heads, 2 queries, 3 keys\)"):
        attention_map(np.zeros(shape), ["a", "b", "c"], ["d", "e"], tmp_path / "a.png", "")
