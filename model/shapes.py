"""The letters of every shape in qkv, stated once.

| letter | dimension                     | letter | dimension                                        |
|--------|-------------------------------|--------|--------------------------------------------------|
| B      | batch                         | D      | model width, d_model                             |
| T      | target / query positions      | H, G   | query heads, key/value heads (G divides H)       |
| S      | source / key positions        | K, Kv  | head width d_k of queries and keys, d_v of values |
| F      | feed-forward width, d_ff      | V      | vocabulary                                       |
| L      | layers                        |        |                                                  |

The annotations are jaxtyping's. The tests check them at run time, so one that lies fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

Array = jax.Array | np.ndarray
"""What is taken for an array, inside a compiled program or outside. What comes out of a function is JAX's."""

Params = Mapping[str, Any]
"""A nested dict of arrays, as Flax's `init` returns it."""


def along_last_axis(vector: Float[Array, " N"], x: Float[Array, "*batch N"]) -> Float[Array, "*batch N"]:
    """`vector` repeated over the leading axes of `x`: the one broadcast the code needs, spelled out.

    NumPy's implicit rank promotion is an error throughout the tests, because it turns shape mistakes into numbers.
    """
    return jnp.broadcast_to(jnp.expand_dims(vector, tuple(range(x.ndim - 1))), x.shape)
