"""Figures of a sweep: axes on which the trials can be told apart."""

import pytest

from analysis.sweep_figures import Point, history, learning_rate_curves, parameters


@pytest.mark.parametrize(("best", "scale"), [(2e-4, "log"), (0.5, "linear"), (-1.0, "linear"), (0.0, "linear")])
def test_the_metric_is_logarithmic_where_small_values_would_look_equal(tmp_path, best, scale):
    values, path = [best, 1.8], tmp_path / "figure.png"
    points = [Point(number, {"optimizer.peak_lr": 1e-3}, value) for number, value in enumerate(values)]
    curves = {"all": {1e-3: [best], 1e-2: [1.8]}}
    for figure in (
        history([*points, Point(2, {}, None)], "loss", False, path),
        parameters(points, "loss", ["optimizer.peak_lr"], path, names=["optimizer.peak_lr"]),
        learning_rate_curves(curves, "loss", "optimizer.peak_lr", path),
    ):
        axis = figure.axes[0]
        assert axis.get_yscale() == scale and axis.get_ylabel() == "loss"
        low, high = axis.get_ylim()
        assert low <= best and high >= 1.8
