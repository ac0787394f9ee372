"""Figures of a run's curves."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from analysis.fonts import font_families
from analysis.style import save_figure

# Okabe and Ito's colours, which colour-blind people tell apart; markers and dashes say the same without colour.
STYLES = {
    "train": {"color": "#0072B2", "linewidth": 1.2},
    "validation": {"color": "#D55E00", "linewidth": 1.4, "linestyle": "--", "marker": "o", "markersize": 4},
}
OTHER_STYLE = {"color": "#009E73", "linewidth": 1.4, "linestyle": ":", "marker": "s", "markersize": 4}
NOT_DRAWN = ("gradient_norm", "tokens", "tokens_per_second")
"""Of how a run went, and not of what it learned."""
LOG_RATIO = 30.0
"""A loss that falls by more than this factor is drawn on a logarithmic axis."""


def training_curves(rows: Sequence[dict[str, Any]], path: str | Path) -> Figure:
    """Plot loss, fractions, further metrics and learning rate against the step, one panel each, as PNG.

    Args:
        rows: rows of `metrics.jsonl`: {"step": 100, "split": "train", "loss": 1.25, "learning_rate": 1e-3, ...}.
            Every metric whose name ends in "accuracy" or "exact_match" is a fraction and shares the second panel; any
            other, such as an auxiliary loss, has a panel of its own. NaN leaves a gap.
        path: the PNG file to write; its directory is made.

    Returns:
        The figure, for a notebook to show.
    """
    names = {name for row in rows for name in row} - {"step", "split"}
    fractions = sorted(name for name in names if name.endswith(("accuracy", "exact_match")))
    panels = [
        "loss",
        *(["fraction"] if fractions else []),
        *sorted(names - {*fractions, "loss", "learning_rate", *NOT_DRAWN}),
        *(["learning_rate"] if "learning_rate" in names else []),
    ]
    with matplotlib.rc_context({"font.family": font_families(), "font.size": 10}):
        ratios = [1.0 if panel == "learning_rate" else 2.0 for panel in panels]
        figure = Figure(figsize=(8.0, 0.8 + 1.4 * sum(ratios)), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(len(panels), sharex=True, squeeze=False, height_ratios=ratios)[:, 0]
        for axis, panel in zip(axes, panels, strict=True):
            if panel == "loss":
                _loss(axis, rows)
            elif panel == "fraction":
                _fractions(axis, rows, fractions)
            elif panel != "learning_rate":
                for split in _splits(rows, panel):
                    axis.plot(*_curve(rows, split, panel), label=split, **STYLES.get(split, OTHER_STYLE))
                axis.set_ylabel(panel.replace("_", " "))
                axis.legend(frameon=False)
            else:
                axis.plot(*_curve(rows, "train", "learning_rate"), color="#444444", linewidth=1.2)
                axis.set_ylabel("learning rate")
                axis.ticklabel_format(axis="y", style="sci", scilimits=(-2, 2), useMathText=True)
                axis.set_ylim(bottom=0.0)
            axis.grid(alpha=0.3)
            axis.spines[["top", "right"]].set_visible(False)
        axes[-1].set_xlabel("step")
        axes[-1].xaxis.get_major_locator().set_params(integer=True)
        figure.align_ylabels(axes)
        save_figure(figure, path)
    return figure


def _loss(axis: Axes, rows: Sequence[dict[str, Any]]) -> None:
    losses = []
    for split in _splits(rows, "loss"):
        steps, values = _curve(rows, split, "loss")
        axis.plot(steps, values, label=split, **STYLES.get(split, OTHER_STYLE))
        losses += [value for value in values if math.isfinite(value)]
    axis.set_ylabel("loss (nats per token)")
    if losses:
        axis.legend(frameon=False)
        if min(losses) > 0.0 and max(losses) > LOG_RATIO * min(losses):
            axis.set_yscale("log")
            axis.yaxis.set_major_formatter("{x:g}")
        else:
            axis.set_ylim(bottom=min(0.0, *losses))


def _fractions(axis: Axes, rows: Sequence[dict[str, Any]], names: list[str]) -> None:
    for number, name in enumerate(names):
        for split in _splits(rows, name):
            style = STYLES.get(split, OTHER_STYLE) | {"alpha": 1.0 if number == 0 else 0.5}
            axis.plot(*_curve(rows, split, name), label=f"{split}: {name.replace('_', ' ')}", **style)
    axis.set_ylabel("fraction correct")
    axis.set_ylim(-0.03, 1.03)
    axis.legend(frameon=False)


def _splits(rows: Sequence[dict[str, Any]], name: str) -> list[str]:
    """Return the splits that have the metric, training first."""
    splits = dict.fromkeys(row["split"] for row in rows if name in row)
    return sorted(splits, key=lambda split: split != "train")


def _curve(rows: Sequence[dict[str, Any]], split: str, name: str) -> tuple[list[int], list[float]]:
    points = [(row["step"], row[name]) for row in rows if row["split"] == split and name in row]
    return [step for step, _ in points], [value for _, value in points]
