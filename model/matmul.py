"""The matrix product that every projection and both attention products go through.

The precision contract of the whole code lives here: operands are rounded to the compute type `dtype`, products are
accumulated in float32 (float64 for float64), and the result stays in that wide type; in the backward pass too, where
the cotangent is rounded to the compute type like any other operand. Autodiff of a mixed-precision product would mix
float32 cotangents with bfloat16 operands and lose the fast path, hence a backward rule of our own. It works under
`vmap`, `scan`, `remat`, `pmap`, `jacrev` and reverse over reverse; forward mode (`jvp`, `jacfwd`) is not defined.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Float

from model.cpu_backend import is_cpu, narrow_product
from model.shapes import Array


def matmul(a: Float[Array, "..."], b: Float[Array, "..."], dtype="float32") -> Float[Array, "..."]:
    """a · b, computed in `dtype`, accumulated and returned in float32 (in float64 if `dtype` is float64).

    Args:
      a: [..., N].
      b: [N, M], one matrix for all of `a` (a projection), or [..., N, M] with the leading axes of `a` (attention).
      dtype: the compute type, "float32", "bfloat16", "float16" or "float64" (needs jax_enable_x64). float32 means
        float32 on every device: GPU's TF32 and TPU's bfloat16 passes are asked for by naming bfloat16, not by default.

    Returns:
      [..., M].

    Raises:
      ValueError: the shapes do not fit.
    """
    fits = a.shape[-1] == b.shape[-2] if b.ndim >= 2 and a.ndim >= 1 else False
    if not fits or (b.ndim > 2 and (a.ndim != b.ndim or a.shape[:-2] != b.shape[:-2])):
        raise ValueError(f"matmul wants [..., N] · [N, M] or [..., T, N] · [..., N, M], got {a.shape} · {b.shape}")
    if b.ndim == 2:
        return _matmul(a.reshape(-1, a.shape[-1]), b, jnp.dtype(dtype)).reshape(*a.shape[:-1], b.shape[-1])
    return _matmul(a, b, jnp.dtype(dtype))


def rounded(x: Float[Array, "..."], dtype) -> Float[Array, "..."]:
    """Round `x` to the values of `dtype`, in the type that it came in: what a product makes of its operands.

    Not `x.astype(dtype).astype(x.dtype)`, which XLA may leave out as a gain in precision.
    """
    kind = jnp.finfo(dtype)
    return x if kind.bits >= jnp.finfo(x.dtype).bits else lax.reduce_precision(x, kind.nexp, kind.nmant)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _matmul(a: Array, b: Array, dtype: jnp.dtype) -> Array:
    return _product(a, b, dtype)


def _forward(a: Array, b: Array, dtype: jnp.dtype) -> tuple[Array, tuple[Array, Array]]:
    # The operands are kept as they came: a rounded copy of the parameters is cheaper to make again than to store.
    return _product(a, b, dtype), (a, b)


def _backward(dtype: jnp.dtype, operands: tuple[Array, Array], g: Array) -> tuple[Array, Array]:
    a, b = operands
    da = _product(g, jnp.swapaxes(b, -1, -2), dtype)
    db = _product(jnp.swapaxes(a, -1, -2), g, dtype, copy_transposed=True)
    return da.astype(a.dtype), db.astype(b.dtype)


_matmul.defvjp(_forward, _backward)


def _product(a: Array, b: Array, dtype: jnp.dtype, copy_transposed: bool = False) -> Array:
    """[*batch, T, N] · [*batch, N, M] with rounded operands and a wide accumulator."""
    wide = jnp.promote_types(dtype, jnp.float32)
    a, b = a.astype(dtype), b.astype(dtype)
    batch = tuple(range(a.ndim - 2))
    contract = (((a.ndim - 1,), (b.ndim - 2,)), (batch, batch))
    if dtype == wide:
        return lax.dot_general(a, b, contract, precision=lax.Precision.HIGHEST, preferred_element_type=wide)
    if is_cpu():
        return narrow_product(a, b, contract, wide, copy_transposed)
    return lax.dot_general(a, b, contract, preferred_element_type=wide)
