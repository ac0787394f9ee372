"""Configs: one clear line for every value that cannot be."""

import math

import pytest

from training.config import OptimizerConfig, TrainConfig

POSITIVE, NOT_NEGATIVE, BELOW_1 = "a positive number", "a number, 0 or more", "a number in [0, 1)"
COUNT, INDEX = "a positive whole number", "a whole number, 0 or more"
WRONG = [
    (OptimizerConfig, "peak_lr", 0.0, POSITIVE),
    (OptimizerConfig, "peak_lr", -1e-3, POSITIVE),
    (OptimizerConfig, "peak_lr", math.nan, POSITIVE),
    (OptimizerConfig, "peak_lr", math.inf, POSITIVE),
    (OptimizerConfig, "peak_lr", "1e-3", POSITIVE),
    (OptimizerConfig, "peak_lr", None, POSITIVE),
    (OptimizerConfig, "peak_lr", True, POSITIVE),
    (OptimizerConfig, "epsilon", 0.0, POSITIVE),
    (OptimizerConfig, "schedule", "cosin", "one of 'noam', 'cosine', 'linear', 'constant'"),
    (OptimizerConfig, "warmup_steps", -1, INDEX),
    (OptimizerConfig, "warmup_steps", 2.5, INDEX),
    (OptimizerConfig, "final_lr_fraction", 1.5, "a number in [0, 1]"),
    (OptimizerConfig, "final_lr_fraction", -0.1, "a number in [0, 1]"),
    (OptimizerConfig, "b1", 1.0, BELOW_1),
    (OptimizerConfig, "b2", -0.5, BELOW_1),
    (OptimizerConfig, "weight_decay", -0.1, NOT_NEGATIVE),
    (OptimizerConfig, "clip_norm", -1.0, NOT_NEGATIVE),
    (OptimizerConfig, "clip_norm", math.inf, NOT_NEGATIVE),
    *[
        (TrainConfig, name, value, COUNT)
        for name in ("steps", "accumulation", "log_every", "evaluate_every", "save_every", "keep_checkpoints")
        for value in (0, -1, 1.5, True, "10")
    ],
    (TrainConfig, "loss_chunk", -1, INDEX),
    (TrainConfig, "loss_chunk", 0.5, INDEX),
    (TrainConfig, "seed", -1, INDEX),
    (TrainConfig, "label_smoothing", 1.0, BELOW_1),
    (TrainConfig, "label_smoothing", -0.1, BELOW_1),
]


@pytest.mark.parametrize(("config", "name", "value", "wanted"), WRONG, ids=lambda x: getattr(x, "__name__", str(x)))
def test_a_wrong_value_gets_one_line_with_name_value_and_what_is_wanted(config, name, value, wanted):
    with pytest.raises(ValueError) as error:
        config(**{name: value})
    assert str(error.value) == f"{name} must be {wanted}, got {value!r}"


def test_the_edges_are_right():
    OptimizerConfig(warmup_steps=0, final_lr_fraction=0.0, b1=0.0, b2=0.0, weight_decay=0.0, clip_norm=0.0)
    OptimizerConfig(final_lr_fraction=1.0, peak_lr=1, weight_decay=1)
    TrainConfig(steps=1, accumulation=1, loss_chunk=0, seed=0, label_smoothing=0.0, log_every=1, keep_checkpoints=1)
