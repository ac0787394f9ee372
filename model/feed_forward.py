"""Position-wise feed-forward networks: FFN(x) = f(x W₁ + b₁) W₂ + b₂ (Vaswani et al. 2017, §3.3), and SwiGLU."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Float, Key

from model.initializers import init_linear
from model.linear import linear
from model.shapes import Array, Params


def relu(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """max(0, x): as in Vaswani et al. 2017."""
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


def init_swiglu(key: Key[Array, ""], d_model: int, d_ff: int) -> Params:
    """{"gate": [D, F] projection, "hidden": [D, F] projection, "output": [F, D] projection}, without biases."""
    gate, hidden, output = jax.random.split(key, 3)
    return {
        "gate": init_linear(gate, d_model, d_ff, bias=False),
        "hidden": init_linear(hidden, d_model, d_ff, bias=False),
        "output": init_linear(output, d_ff, d_model, bias=False),
    }


def swiglu(params: Params, x: Float[Array, "B T D"], dtype="float32") -> Float[Array, "B T D"]:
    """(silu(x W_gate) · x W_hidden) W_output (Shazeer 2020).

    Three matrices where the plain network has two: two thirds of its d_ff give the same number of parameters.
    """
    gate = jax.nn.silu(linear(params["gate"], x, dtype))
    return linear(params["output"], gate * linear(params["hidden"], x, dtype), dtype)
