"""Hyperparameters as data: numbers that enter the compiled step in the train state, like the parameters.

*Whether* a thing is done is the structure of this dict (a rate of 0 is left out, and so is its work); *how much* is a
float32 array in it. So one compiled step serves any learning rate, and `jax.vmap` of it many trials at once.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from model.config import BlockConfig
from training.config import OptimizerConfig, TrainConfig

Hyperparameters = dict[str, Float[Array, ""]]

OPTIONAL = ("weight_decay", "clip_norm", "label_smoothing", "ema", "dropout", "attention_dropout")
"""Left out when 0."""


def hyperparameters(model: BlockConfig, optimizer: OptimizerConfig, train: TrainConfig) -> Hyperparameters:
    """Collect the hyperparameters of a run by name, as float32 scalars."""
    names = ("peak_lr", "warmup_steps", "final_lr_fraction", "b1", "b2", "epsilon", "weight_decay", "clip_norm")
    numbers = {name: getattr(optimizer, name) for name in names}
    numbers |= {"total_steps": train.steps, "label_smoothing": train.label_smoothing, "ema": train.ema}
    numbers |= {"dropout": model.dropout, "attention_dropout": model.attention_dropout}
    return {name: jnp.float32(number) for name, number in numbers.items() if number or name not in OPTIONAL}
