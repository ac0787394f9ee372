"""The affine map x W + b that every sublayer is made of."""

from __future__ import annotations

from jaxtyping import Float

from model.matmul import matmul
from model.shapes import Array, Params, along_last_axis


def linear(params: Params, x: Float[Array, "*batch N"], dtype="float32") -> Float[Array, "*batch M"]:
    """x · kernel + bias, the bias where there is one. The product is computed in `dtype`, the sum in float32."""
    y = matmul(x, params["kernel"], dtype)
    return y + along_last_axis(params["bias"], y) if "bias" in params else y
