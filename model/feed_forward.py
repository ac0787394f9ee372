"""The position-wise feed-forward network FFN(x) = f(x W₁ + b₁) W₂ + b₂ (the paper, section 3.3)."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Float, Key

from model.initializers import init_linear
from model.linear import linear
from model.shapes import Array, Params


def relu(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """max(0, x): the paper's choice."""
    return jnp.maximum(x, 0)


def gelu(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """x · Φ(x) in the tanh form of GPT-2, which costs half of the exact one on a CPU."""
    return jax.nn.gelu(x, approximate=True)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"relu": relu, "gelu": gelu}


def init_feed_forward(key: Key[Array, ""], d_model: int, d_ff: int, bias: bool = True) -> Params:
    """{"hidden": [D, F] projection, "output": [F, D] projection}."""
    hidden_key, output_key = jax.random.split(key)
    return {
        "hidden": init_linear(hidden_key, d_model, d_ff, bias),
        "output": init_linear(output_key, d_ff, d_model, bias),
    }


def feed_forward(
    params: Params, x: Float[Array, "B T D"], activation: Callable[[Array], Array] = relu, dtype="float32"
) -> Float[Array, "B T D"]:
    """activation(x W₁ + b₁) W₂ + b₂, each position by itself."""
    return linear(params["output"], activation(linear(params["hidden"], x, dtype)), dtype)
