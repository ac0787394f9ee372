"""Where a token stands: sinusoids (the paper, section 3.5) or a learned table, added to the embeddings."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def sinusoidal_positions(length: int, d_model: int) -> Float[np.ndarray, "length D"]:
    """PE(t, 2i) = sin(t / 10000^(2i/d_model)), PE(t, 2i+1) = cos(t / 10000^(2i/d_model)).

    Sine and cosine are interleaved; for odd d_model the last column is a sine. Angles are computed in float64 and the
    result is cast to float32, so all rows differ also where the model computes in bfloat16 (there 255 and 256 and 257
    would be two numbers).
    """
    frequencies = 10000.0 ** (-np.arange(0, d_model, 2, dtype=np.float64) / d_model)
    angles = np.arange(length, dtype=np.float64)[:, None] * frequencies[None, :]
    interleaved = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, -1)
    return interleaved[:, :d_model].astype(np.float32)
