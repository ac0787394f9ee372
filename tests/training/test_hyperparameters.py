"""Hyperparameters: what is there, what is left out, and that it is data."""

import jax.numpy as jnp

from model.config import LanguageModelConfig, TransformerConfig
from training.config import OptimizerConfig, TrainConfig
from training.hyperparameters import OPTIONAL, hyperparameters

ALWAYS = {"peak_lr", "warmup_steps", "final_lr_fraction", "b1", "b2", "epsilon", "total_steps"}


def test_each_number_arrives_under_its_name():
    model = TransformerConfig(dropout=0.2, attention_dropout=0.3)
    optimizer = OptimizerConfig(peak_lr=5e-4, warmup_steps=7, final_lr_fraction=0.25, b1=0.8, b2=0.95, epsilon=1e-8)
    optimizer = OptimizerConfig(**(vars(optimizer) | {"weight_decay": 0.01, "clip_norm": 2.0}))
    numbers = hyperparameters(model, optimizer, TrainConfig(steps=300, label_smoothing=0.1))
    wanted = {"peak_lr": 5e-4, "warmup_steps": 7, "final_lr_fraction": 0.25, "b1": 0.8, "b2": 0.95, "epsilon": 1e-8}
    wanted |= {"weight_decay": 0.01, "clip_norm": 2.0, "total_steps": 300, "label_smoothing": 0.1}
    wanted |= {"dropout": 0.2, "attention_dropout": 0.3}
    assert numbers == {name: jnp.float32(value) for name, value in wanted.items()}
    assert {(x.shape, x.dtype) for x in numbers.values()} == {((), jnp.dtype("float32"))}


def test_what_is_off_is_not_there_and_what_is_0_is():
    off = OptimizerConfig(weight_decay=0.0, clip_norm=0.0, warmup_steps=0, final_lr_fraction=0.0, b1=0.0)
    numbers = hyperparameters(LanguageModelConfig(dropout=0.0), off, TrainConfig())
    assert set(numbers) == ALWAYS
    assert numbers["warmup_steps"] == 0 and numbers["b1"] == 0
    on = OptimizerConfig(weight_decay=0.1, clip_norm=1.0)
    model = LanguageModelConfig(dropout=0.1, attention_dropout=0.1)
    assert set(hyperparameters(model, on, TrainConfig(label_smoothing=0.1, ema=0.9))) == ALWAYS | set(OPTIONAL)
