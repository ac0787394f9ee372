"""Saving of figures."""

from __future__ import annotations

import warnings
from pathlib import Path

from matplotlib.figure import Figure


def save_figure(figure: Figure, path: str | Path) -> None:
    """Save `figure` as PNG, its directory created. The same numbers give the same file.

    A glyph that no font has is drawn as a box, and nothing is said of it: matplotlib would warn for each glyph of each
    figure.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        figure.savefig(path, dpi=150, metadata={"Software": None})  # no version of matplotlib in the file
