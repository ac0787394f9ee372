"""Attention weights with the tokens that they are of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

AXIS_LABELS = {
    "encoder_self_attention": ("source token", "source token"),
    "decoder_self_attention": ("token before", "target token"),
    "decoder_cross_attention": ("source token", "target token"),
    "self_attention": ("token", "token"),
}
"""Kind of attention, as the models sow it -> what its keys and its queries are."""


class AttentionMap(NamedTuple):
    """The weights of one kind of attention in one example, and how its keys and queries are labelled."""

    weights: np.ndarray
    """float [L, H, T, S]: in each layer and head, row t is the distribution of query t over the S keys."""
    keys: Sequence[str]
    """S strings."""
    queries: Sequence[str]
    """T strings."""


def check_shape(weights: np.ndarray, keys: Sequence[str], queries: Sequence[str]) -> None:
    """Raise ValueError unless `weights` is [H, T, S] for these S keys and T queries."""
    if weights.ndim != 3 or weights.shape[1:] != (len(queries), len(keys)):
        raise ValueError(
            f"weights have shape {weights.shape}, wanted (heads, {len(queries)} queries, {len(keys)} keys)"
        )


def entropy(weights: np.ndarray) -> np.ndarray:
    """Return the mean over the queries of −Σ w ln w over the keys, in nats: [..., T, S] -> [...].

    0 where each query attends to one key, ln S where all attend to every key alike.
    """
    weights = np.asarray(weights, np.float64)
    return -(weights * np.log(np.where(weights > 0, weights, 1.0))).sum(axis=-1).mean(axis=-1)
