"""The interactive page of attention maps: one HTML file that opens from disk, without a network."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from analysis.attention_maps import AttentionMap, check_shape, entropy

TEMPLATE = Path(__file__).with_name("attention_page.html")
LARGEST = 255
"""What the page has for a weight of 1: it keeps weights in bytes, in steps of 0.004."""


def attention_page(maps: Mapping[str, AttentionMap], title: str) -> str:
    """Return a page on which layer and head are chosen from a grid of small maps, and a token shows where it attends.

    Tokens stand on both sides, queries left and keys right, in lines that are as dark as the weight is large. Each head
    has its entropy. Tokens are shown as text, whatever they hold.

    Args:
      maps: by kind, such as "decoder_cross_attention".
      title: what the weights are of.

    Raises:
      ValueError: no maps, or weights that do not fit their tokens or are no numbers from 0 to 1.
    """
    if not maps:
        raise ValueError("there are no attention maps to show")
    kinds = {}
    for kind, (weights, keys, queries) in maps.items():
        weights = np.asarray(weights, np.float32)
        for layer in weights:
            check_shape(layer, keys, queries)
        if not (weights >= 0).all() or weights.max() > 1.001:
            raise ValueError(f"{kind}: wanted weights from 0 to 1")
        levels = np.rint(np.minimum(weights, 1.0) * LARGEST).astype(np.uint8)
        kinds[kind.replace("_", " ")] = {
            "shape": weights.shape,
            "weights": base64.b64encode(levels.tobytes()).decode(),
            "entropy": entropy(weights).round(3).tolist(),
            "keys": list(keys),
            "queries": list(queries),
        }
    # Within a script element nothing is escaped: what could end it is written as JSON's own escape.
    data = json.dumps({"title": title, "kinds": kinds}).replace("<", "\\u003c")
    template = TEMPLATE.read_text(encoding="utf-8")
    return template.replace("<!-- title -->", html.escape(title)).replace("/* data */", data)
