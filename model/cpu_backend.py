"""Workarounds of XLA's CPU backend: three decisions that no other file makes.

Measured on 2 cores with jax 0.10.2 (`benchmarks/`, `experiments/LOG.md`). On GPU and TPU the plain forms are right.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.layout import Layout, with_layout_constraint

from model.shapes import Array


def narrow_product(a: Array, b: Array, contract, wide: jnp.dtype, copy_transposed: bool) -> Array:
    """Multiply operands narrower than float32, accumulated and returned in `wide`.

    bfloat16 on one device: XLA's CPU backend multiplies bfloat16 fast (AMX), but cannot store such a product
    transposed: it fails at run time ("Unsupported element type for DotThunk::Execute"). Pinning the layout of the
    result rules that out. A left operand that arrives transposed (the weight gradient, `copy_transposed`) is first laid
    out row by row, which measured 3 to 5 times faster.

    float16, and bfloat16 over several CPU devices, where a pinned layout would gather sharded activations on every
    device: products of narrow numbers are exact in float32, so widening first gives the same sums.
    """
    if a.dtype == jnp.bfloat16 and jax.device_count() == 1:
        a = _row_major(a) if copy_transposed else a
        return _row_major(lax.dot_general(a, b, contract, preferred_element_type=wide))
    return lax.dot_general(a.astype(wide), b.astype(wide), contract, precision=lax.Precision.HIGHEST)


def cache_dtype(dtype) -> jnp.dtype:
    """Return the cache's type of keys and values computed in `dtype`: `dtype` itself, but on a CPU at least float32.

    XLA's CPU backend makes the whole of a narrower array wide for every slot that is written into it, and again for
    every product of one query (beam search in bfloat16: 246 ms a step, 62 ms with wide caches).
    """
    return jnp.promote_types(dtype, jnp.float32) if is_cpu() else jnp.dtype(dtype)


def moves_cache_by_blocks() -> bool:
    """Return whether beam search moves only the slots that its beams do not share (`model.cache.reorder_cache`).

    On a CPU copying the whole cache for every token costs more than the step. Elsewhere memory is fast, and many small
    copies are not: whole rows are gathered there.
    """
    return is_cpu()


def is_cpu() -> bool:
    """Return whether programs are compiled for the CPU."""
    return jax.default_backend() == "cpu"


def _row_major(x: Array) -> Array:
    return with_layout_constraint(x, Layout(major_to_minor=tuple(range(x.ndim))))
