"""Attention maps: which source token each target token looks at, head by head."""

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from analysis.fonts import font_families
from analysis.style import save_figure

VISIBLE = str.maketrans({" ": "␣", "\n": "⏎", "\t": "⇥"})
CELL = 0.2
"""Inches per token on either axis, enough for a character of 9 points."""


def attention_map(
    weights: np.ndarray,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    path: str | Path,
    title: str,
) -> Figure:
    """Plot one panel per head and one with the mean over the heads, as PNG.

    Rows are queries (target tokens), columns are keys (source tokens); all panels share one scale from 0 to 1.

    Args:
        weights: float [H, T, S], one layer's attention weights of one example.
        source_tokens: S strings, as the keys are labelled. Spaces are drawn as ␣.
        target_tokens: T strings, as the queries are labelled.
        path: the PNG file to write; its directory is made.
        title: says which layer and which example.

    Returns:
        The figure, for a notebook to show.

    Raises:
        ValueError: the shape of the weights does not fit the tokens.
    """
    weights = np.asarray(weights, dtype=np.float32)
    if weights.ndim != 3 or weights.shape[1:] != (len(target_tokens), len(source_tokens)):
        raise ValueError(
            f"weights have shape {weights.shape}, wanted (heads, {len(target_tokens)} target tokens, "
            f"{len(source_tokens)} source tokens)"
        )
    heads, queries, keys = weights.shape
    panels = [(f"head {head + 1}", weights[head]) for head in range(heads)]
    panels.append((f"mean of {heads} heads", weights.mean(axis=0)))
    longest = max(map(len, [*source_tokens, " "]))
    width, height = CELL * keys + 0.7, CELL * queries + 0.6 + 0.08 * (longest - 1)
    columns = min(len(panels), max(1, round(math.sqrt(len(panels) * height / width * 1.3))))
    rows = math.ceil(len(panels) / columns)
    sources = [token.translate(VISIBLE) for token in source_tokens]
    targets = [token.translate(VISIBLE) for token in target_tokens]
    with matplotlib.rc_context({"font.family": font_families(), "font.size": 9}):
        figure = Figure(figsize=(max(columns * width + 1.0, 5.0), rows * height + 0.8), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for axis, (name, panel) in zip(axes, panels, strict=False):
            image = axis.imshow(panel, vmin=0.0, vmax=1.0, cmap="Blues", interpolation="nearest")
            axis.set_title(name, fontsize=10)
            # Tokens are text, never formulas, even where they hold dollar signs.
            axis.set_xticks(range(keys), sources, parse_math=False)
            for label in axis.get_xticklabels():
                label.set_rotation(90 if len(label.get_text()) > 1 else 0)
            axis.set_yticks(range(queries), targets, parse_math=False)
            axis.tick_params(length=0)
            axis.hlines(np.arange(1, queries) - 0.5, -0.5, keys - 0.5, color="#e4e4e4", linewidth=0.5)
            axis.vlines(np.arange(1, keys) - 0.5, -0.5, queries - 0.5, color="#e4e4e4", linewidth=0.5)
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
        figure.suptitle(title, fontsize=12, parse_math=False)
        figure.supxlabel("key: source token", fontsize=10)
        figure.supylabel("query: target token", fontsize=10)
        figure.colorbar(image, ax=axes.tolist(), label="attention weight", shrink=min(1.0, 3.0 / (rows * height)))
        save_figure(figure, path)
    return figure
