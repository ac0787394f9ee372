"""How long the examples are: the numbers of a histogram, and its picture."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

BINS = 12


def histogram(lengths: np.ndarray) -> list[tuple[int, int, int]]:
    """`(first, last, count)` for at most 12 ranges of lengths of equal width that hold all of `lengths` (int [N])."""
    low, high = int(lengths.min()), int(lengths.max())
    width = -(-(high - low + 1) // BINS)
    counts = np.bincount((lengths - low) // width)
    return [(low + n * width, low + (n + 1) * width - 1, int(count)) for n, count in enumerate(counts)]


def draw(lengths: Mapping[str, np.ndarray], path: str | Path) -> None:
    """Write a picture (PNG): a panel for each item, its title the name, its values int [N] lengths."""
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
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, metadata={"Software": None})
