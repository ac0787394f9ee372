"""How much memory a run will want, before it starts."""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax

from training.step import TrainState


def memory_line(state: TrainState, input_shapes: Mapping[str, tuple[int, ...]], vocab_sizes: Mapping[str, int]) -> str:
    """One line: bytes of parameters, optimizer moments, gradients and logits; activations come on top."""
    params, moments = _size(state.params), _size(state.opt_state)
    count = sum(leaf.size for leaf in jax.tree.leaves(state.params))
    positions = math.prod(list(input_shapes.values())[-1])
    logits = 4 * positions * list(vocab_sizes.values())[-1]
    return (
        f"{count:,} parameters; memory: parameters {_megabytes(params)}, optimizer {_megabytes(moments)}, "
        f"gradients {_megabytes(params)}, logits {_megabytes(logits)}, and the activations"
    )


def _size(tree: object) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
