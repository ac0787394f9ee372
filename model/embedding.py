"""Token embeddings and output logits (Vaswani et al. 2017, §3.4)."""

from __future__ import annotations

import math

import jax.numpy as jnp
from jaxtyping import Float, Int

from model.matmul import matmul
from model.shapes import Array


def embedding_lookup(table: Float[Array, "V D"], ids: Int[Array, "B T"]) -> Float[Array, "B T D"]:
    """Rows of `table`. An id outside of it, a negative one included, gives NaN and never a neighbour's row.

    The data are checked before training; what slips through must be loud, where JAX's own rules would clamp or wrap.
    """
    inside = (ids >= 0) & (ids < table.shape[0])
    return jnp.where(inside[..., None], jnp.asarray(table).at[ids].get(mode="clip"), jnp.nan)


def embed(table: Float[Array, "V D"], ids: Int[Array, "B T"]) -> Float[Array, "B T D"]:
    """√d_model times the rows of `table`: rows are drawn from N(0, 1/d_model), so what goes in has unit variance.

    The factor is a float32 number whatever the compute type (bfloat16 would round √3072 to 55.5).
    """
    return embedding_lookup(table, ids) * math.sqrt(table.shape[1])


def unembed(table: Float[Array, "V D"], x: Float[Array, "B T D"], dtype="float32") -> Float[Array, "B T V"]:
    """Logits: the inner product of `x` with each row of `table`, which may be the input embedding itself (tied)."""
    return matmul(x, table.T, dtype)
