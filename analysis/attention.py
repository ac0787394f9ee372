"""Pictures of attention maps: which key each query attends to, head by head."""

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from analysis.attention_maps import AXIS_LABELS, check_shape
from analysis.fonts import font_families
from analysis.style import save_figure

VISIBLE = str.maketrans({" ": "␣", "\n": "⏎", "\t": "⇥"})
CELL = 0.2
"""Inches per token on either axis, enough for a character of 9 points."""
MOST_LABELS = 80
"""Tokens on an axis that are all labelled. Of more, each takes less space, and the axis counts them."""


def attention_map(
    weights: np.ndarray,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    path: str | Path,
    title: str,
    kind: str = "decoder_cross_attention",
) -> Figure:
    """Plot one panel per head and one with the mean over the heads, as PNG.

    Rows are queries (target tokens), columns are keys (source tokens); all panels share one scale from 0 to 1.

    Args:
        weights: float [H, T, S], one layer's attention weights of one example.
        source_tokens: S strings, as the keys are labelled. Spaces are drawn as ␣.
        target_tokens: T strings, as the queries are labelled.
        path: the PNG file to write; its directory is made.
        title: says which layer and which example; `shortened` keeps a long one beside the panels.
        kind: one of `attention_maps.AXIS_LABELS`, which says what the axes are.

    Returns:
        The figure, for a notebook to show.

    Raises:
        ValueError: the shape of the weights does not fit the tokens.
    """
    weights = np.asarray(weights, dtype=np.float32)
    check_shape(weights, source_tokens, target_tokens)
    heads, queries, keys = weights.shape
    panels = [(f"head {head + 1}", weights[head]) for head in range(heads)]
    panels.append((f"mean of {heads} heads", weights.mean(axis=0)))
    longest = max(map(len, [*source_tokens, " "]))
    labelled = max(keys, queries) <= MOST_LABELS
    cell = CELL if labelled else 4.0 / max(keys, queries)  # a panel of 4 inches
    width, height = cell * keys + 0.7, cell * queries + 0.6 + (0.08 * (longest - 1) if labelled else 0.0)
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
            if labelled:
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
        counted = "" if labelled else ", by number from 0"
        key_label, query_label = AXIS_LABELS[kind]
        figure.supxlabel(f"key: {key_label}{counted}", fontsize=10)
        figure.supylabel(f"query: {query_label}{counted}", fontsize=10)
        figure.colorbar(image, ax=axes.tolist(), label="attention weight", shrink=min(1.0, 3.0 / (rows * height)))
        save_figure(figure, path)
    return figure


def shortened(text: str) -> str:
    """Return at most 60 characters of a text for a title: a picture is only as wide as its tokens."""
    return text if len(text) <= 60 else f"{text[:59]}…"
