"""Estimate of a run's memory, before it starts."""

from __future__ import annotations

import math

import jax

from training.config import TrainConfig
from training.loss import Batch
from training.step import TrainState


def memory_line(state: TrainState, batch: Batch, vocab_size: int, settings: TrainConfig) -> str:
    """Format one line: bytes of parameters, optimizer moments, gradients and logits; activations come on top.

    Args:
      batch: the widest that the step will get. Of its logits those are counted that exist at a time: of one microbatch
        where gradients are accumulated, of one chunk where the loss takes the vocabulary in pieces. Accumulating needs
        room for the gradients twice, the sum and the newest ones.
      vocab_size: classes of the logits.
    """
    params, moments = _size(state.params), _size(state.opt_state)
    count = sum(leaf.size for leaf in jax.tree.leaves(state.params))
    positions = math.prod(batch["labels"].shape) // settings.grad_accumulation_steps
    logits = 4 * (min(positions, settings.logits_chunk) if settings.logits_chunk else positions) * vocab_size
    sums = f"accumulator {_megabytes(params)}, " if settings.grad_accumulation_steps > 1 else ""
    return (
        f"{count:,} parameters; memory: parameters {_megabytes(params)}, optimizer {_megabytes(moments)}, "
        f"gradients {_megabytes(params)}, {sums}logits {_megabytes(logits)}, and the activations"
    )


def _size(tree: object) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
