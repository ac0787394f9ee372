"""Histograms of example lengths."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from analysis.style import save_figure


def plot_lengths(lengths: Mapping[str, np.ndarray], path: str | Path) -> None:
    """Plot a histogram for each item as PNG: int [N] lengths in tokens by name, the panel's title."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 1.0 + 2.2 * len(lengths)), layout="constrained")
    FigureCanvasAgg(figure)
    for axis, (name, values) in zip(figure.subplots(len(lengths), squeeze=False)[:, 0], lengths.items()):
        low, high = int(values.min()), int(values.max())
        width = -(-(high - low + 1) // 100)
        axis.hist(values, bins=np.arange(low, high + 2 * width, width) - 0.5, color="#0072B2")
        axis.axvline(np.median(values), color="#D55E00", linestyle="--", label=f"median {np.median(values):g}")
        axis.set_title(f"{name}, {len(values):,} examples, training split", loc="left")
        axis.set_xlabel("tokens, end of sentence counted")
        axis.set_ylabel("examples")
        axis.legend(frameon=False)
        axis.spines[["top", "right"]].set_visible(False)
    save_figure(figure, path)
