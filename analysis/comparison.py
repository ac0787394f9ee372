"""Curves of several runs on one axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from analysis.fonts import font_families
from analysis.style import save_figure
from analysis.sweep_figures import LINES


def compare_curves(runs: Mapping[str, Sequence[dict[str, Any]]], metric: str, path: Path) -> Figure:
    """Plot `metric` of each run on the validation split against the step, and thinly on the training split, as PNG.

    Args:
      runs: name -> rows of its `metrics.jsonl`.
    """
    with matplotlib.rc_context({"font.family": font_families(), "font.size": 10}):
        figure = Figure(figsize=(8.0, 4.5), layout="constrained")
        FigureCanvasAgg(figure)
        axis = figure.subplots()
        for number, (name, rows) in enumerate(runs.items()):
            style = LINES[number % len(LINES)]
            for split in ("train", "validation"):
                points = [(row["step"], row[metric]) for row in rows if row["split"] == split and metric in row]
                if not points:
                    continue
                if split == "train":
                    axis.plot(*zip(*points, strict=True), color=style["color"], linewidth=0.7, alpha=0.4)
                else:
                    axis.plot(*zip(*points, strict=True), label=name, markersize=4, **style)
        axis.set_xlabel("step")
        unit = " (nats per token)" if metric == "loss" else ""
        axis.set_ylabel(f"{metric.replace('_', ' ')}{unit}; thin: training")
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        for text in axis.legend(frameon=False).get_texts():
            text.set_parse_math(False)
        save_figure(figure, path)
    return figure
