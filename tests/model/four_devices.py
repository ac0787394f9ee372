"""Run by test_sharding.py in a process of its own with four CPU devices; writes what it computed to the given file."""

import sys

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from model.config import LanguageModelConfig
from model.dropout import dropout
from model.language_model import LanguageModel
from model.matmul import matmul
from tests.model.samples import normal, parameters, token_ids

X, W, W_BATCHED, G = normal(8, 6, 16), normal(16, 12, seed=1), normal(8, 16, 12, seed=2), normal(8, 6, 12, seed=3)
TOKENS = token_ids(8, 6, vocab_size=11)
CASES = {
    f"{kind} {dtype}": (w, dtype)
    for kind, w in (("projection", W), ("batched", W_BATCHED))
    for dtype in ("float32", "bfloat16", "float16")
}


def product(w, dtype):
    """(x, w, g) -> (x w, dx, dw)"""

    def run(x, w, g):
        y, backward = jax.vjp(lambda x, w: matmul(x, w, dtype), x, w)
        return (y, *backward(g))

    return run


def mask(x):
    """Dropout of ones, of a shape whose last axis is odd."""
    return dropout(x, jax.random.key(0), 0.3)


def logits(params, tokens):
    model = LanguageModel(
        LanguageModelConfig(d_model=8, num_heads=2, d_ff=12, num_layers=1, max_length=8, dtype="bfloat16"), 11
    )
    rates = {"dropout_rate": 0.3, "attention_dropout_rate": 0.2}
    return model.apply({"params": params}, tokens, **rates, rngs={"dropout": jax.random.key(0)})


def model_parameters():
    config = LanguageModelConfig(d_model=8, num_heads=2, d_ff=12, num_layers=1, max_length=8)
    return parameters(LanguageModel(config, 11), 6)


def main(path):
    assert jax.device_count() == 4
    mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,))
    rows, replicated = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
    results, gathers = {}, {}

    def run(name, function, shardings, *arguments):
        compiled = jax.jit(function, in_shardings=shardings).lower(*arguments).compile()
        gathers[name] = compiled.as_text().count("all-gather")
        placed = [jax.device_put(x, s) for x, s in zip(arguments, shardings)]
        for i, leaf in enumerate(jax.tree.leaves(compiled(*placed))):
            results[f"{name} {i}"] = np.asarray(leaf)

    for name, (w, dtype) in CASES.items():
        run(name, product(w, dtype), (rows, rows if w.ndim == 3 else replicated, rows), X, w, G)
    run("mask", mask, (rows,), np.ones((8, 5, 7), np.float32))
    run("logits", logits, (replicated, rows), model_parameters(), TOKENS)
    np.savez(path, **results, **{f"gathers {name}": number for name, number in gathers.items()})


if __name__ == "__main__":
    main(sys.argv[1])
