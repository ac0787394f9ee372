"""Figures of a sweep: its history, each parameter against the metric, importances, learning-rate curves by width."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from analysis.fonts import font_families
from analysis.style import save_figure

# Okabe and Ito's colours; markers and dashes say the same without colour.
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
LINES = [
    {"color": color, "marker": marker, "linestyle": line}
    for color, marker, line in zip(
        (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY), "osD^vP", ("-", "--", "-.", ":", "-", "--"), strict=True
    )
]


@dataclass(frozen=True)
class Point:
    """One trial, as figures show it."""

    number: int
    params: Mapping[str, Any]
    value: float | None
    """The metric; None for a trial that failed."""
    pruned: bool = False
    """Whether it was stopped early: its metric is that of an earlier step."""


def history(points: Sequence[Point], metric: str, maximize: bool, path: Path) -> Figure:
    """Plot the metric of each trial by its number, and the best so far, as PNG."""
    with _figure(path, 7.0, 3.6) as (figure, (axis,)):
        done = [point for point in points if point.value is not None and not point.pruned]
        pruned = [point for point in points if point.value is not None and point.pruned]
        failed = [point for point in points if point.value is None]
        if done:
            best = (np.maximum if maximize else np.minimum).accumulate([point.value for point in done])
            numbers = [point.number for point in done]
            axis.step(numbers, best, where="post", color=BLUE, label="best so far")
            axis.plot(numbers, [point.value for point in done], "o", color=BLUE, label="finished")
        if pruned:
            axis.plot(
                [p.number for p in pruned],
                [p.value for p in pruned],
                "^",
                mfc="none",
                color=ORANGE,
                label="stopped early",
            )
        if failed:
            axis.plot(
                [point.number for point in failed],
                [0.02] * len(failed),
                "x",
                color=VERMILION,
                label="failed",
                transform=axis.get_xaxis_transform(),
            )
        axis.set_xlabel("trial")
        _metric_axis(axis, metric, [point.value for point in done + pruned])
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.legend(frameon=False)
    return figure


def parameters(
    points: Sequence[Point], metric: str, logarithmic: Sequence[str], path: Path, *, names: Sequence[str]
) -> Figure:
    """Plot the metric against each of the parameters `names`, one panel each, as PNG.

    Args:
      logarithmic: those whose axis is logarithmic.
    """
    columns = min(len(names), 3)
    rows = math.ceil(len(names) / columns)
    with _figure(path, 3.2 * columns + 0.6, 2.8 * rows + 0.3, rows, columns) as (figure, axes):
        for axis, name in zip(axes, names, strict=False):
            for pruned in (False, True):
                chosen = [point for point in points if point.value is not None and point.pruned == pruned]
                style = {"marker": "^", "mfc": "none", "color": ORANGE} if pruned else {"marker": "o", "color": BLUE}
                values = [point.params[name] for point in chosen]
                if any(not isinstance(p.params[name], int | float) or isinstance(p.params[name], bool) for p in points):
                    kinds = sorted({str(point.params[name]) for point in points})
                    values = [kinds.index(str(value)) for value in values]
                    axis.set_xticks(range(len(kinds)), kinds, parse_math=False)
                    axis.set_xlim(-0.5, len(kinds) - 0.5)
                axis.plot(values, [point.value for point in chosen], linestyle="none", alpha=0.8, **style)
            if name in logarithmic:
                axis.set_xscale("log")
            axis.set_xlabel(name)
            _metric_axis(axis, metric, [point.value for point in points if point.value is not None])
        for axis in axes[len(names) :]:
            axis.set_axis_off()
    return figure


def importances(values: Mapping[str, float], metric: str, path: Path) -> Figure:
    """Plot the importance of each parameter as a bar, the largest on top, as PNG."""
    with _figure(path, 6.0, 1.0 + 0.4 * len(values)) as (figure, (axis,)):
        names = sorted(values, key=lambda name: values[name])
        bars = axis.barh(names, [values[name] for name in names], color=BLUE, height=0.6)
        axis.bar_label(bars, fmt="%.2f", padding=3)
        axis.set_xlim(0.0, 1.1 * max(*values.values(), 0.01))
        axis.set_xlabel(f"share of the variance of {metric} (PED-ANOVA)")
        axis.grid(axis="y", visible=False)
    return figure


def learning_rate_curves(
    curves: Mapping[str, Mapping[float, Sequence[float]]], metric: str, option: str, path: Path
) -> Figure:
    """Plot the metric against the learning rate, one line for each width: means, and error bars of one standard
    deviation where there are several seeds, as PNG.

    Args:
      curves: label -> learning rate -> metric of each seed.
      option: name of the learning rate's option.
    """
    with _figure(path, 6.4, 4.0) as (figure, (axis,)):
        for (label, curve), style in zip(curves.items(), LINES * math.ceil(len(curves) / len(LINES)), strict=False):
            rates = sorted(curve)
            means = [float(np.mean(curve[rate])) for rate in rates]
            spread = [float(np.std(curve[rate], ddof=1)) if len(curve[rate]) > 1 else 0.0 for rate in rates]
            axis.errorbar(rates, means, spread, label=label, capsize=3, markersize=5, **style)
        axis.set_xscale("log")
        axis.set_xlabel(f"learning rate ({option})")
        _metric_axis(axis, metric, [value for curve in curves.values() for seeds in curve.values() for value in seeds])
        if any(curves):
            axis.legend(frameon=False)
    return figure


def _metric_axis(axis: Axes, metric: str, values: Sequence[float]) -> None:
    """Label the axis of the metric; logarithmic where values differ so much that the small ones would look equal."""
    axis.set_ylabel(metric)
    if values and min(values) > 0 and max(values) > 20 * min(values):
        axis.set_yscale("log")


@contextlib.contextmanager
def _figure(
    path: Path, width: float, height: float, rows: int = 1, columns: int = 1
) -> Iterator[tuple[Figure, list[Axes]]]:
    with matplotlib.rc_context({"font.family": font_families(), "font.size": 10}):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        axes = list(figure.subplots(rows, columns, squeeze=False).ravel())
        for axis in axes:
            axis.grid(alpha=0.3)
            axis.spines[["top", "right"]].set_visible(False)
        yield figure, axes
        save_figure(figure, path)
