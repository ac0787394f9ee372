"""Configs: one clear line for every value that cannot be."""

import math
from functools import partial

import jax
import numpy as np
import pytest

from inference.generation_config import DecodingOptions
from model.config import LanguageModelConfig, TransformerConfig
from model.float32 import float32
from training.config import OptimizerConfig, TrainConfig

POSITIVE, NOT_NEGATIVE, BELOW_1 = "a positive number", "a number, 0 or more", "a number in [0, 1)"
COUNT, INDEX = "a positive whole number", "a whole number, 0 or more"
STEPS, WARMUP = "a whole number from 1 to 2**31 - 1", "a whole number from 0 to 2**31 - 1"
SEED = "a whole number from 0 to 2**32 - 1"
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
    (OptimizerConfig, "warmup_steps", -1, WARMUP),
    (OptimizerConfig, "warmup_steps", 2.5, WARMUP),
    (OptimizerConfig, "final_lr_fraction", 1.5, "a number in [0, 1]"),
    (OptimizerConfig, "final_lr_fraction", -0.1, "a number in [0, 1]"),
    (OptimizerConfig, "b1", 1.0, BELOW_1),
    (OptimizerConfig, "b2", -0.5, BELOW_1),
    (OptimizerConfig, "weight_decay", -0.1, NOT_NEGATIVE),
    (OptimizerConfig, "clip_norm", -1.0, NOT_NEGATIVE),
    (OptimizerConfig, "clip_norm", math.inf, NOT_NEGATIVE),
    *[
        (TrainConfig, name, value, COUNT)
        for name in ("grad_accumulation_steps", "log_every", "evaluate_every", "save_every", "max_to_keep")
        for value in (0, -1, 1.5, True, "10")
    ],
    (TrainConfig, "logits_chunk", -1, INDEX),
    (TrainConfig, "logits_chunk", 0.5, INDEX),
    *[(TrainConfig, "steps", value, STEPS) for value in (0, -1, 1.5, True, "10", 2**31, 10**400)],
    *[(OptimizerConfig, "warmup_steps", value, WARMUP) for value in (True, 2**31, 10**400)],
    *[(TrainConfig, "seed", value, SEED) for value in (-1, 1.5, True, 2**32, 2**63, 10**400)],
    (TrainConfig, "label_smoothing", 1.0, BELOW_1),
    (TrainConfig, "label_smoothing", -0.1, BELOW_1),
]


@pytest.mark.parametrize(("config", "name", "value", "wanted"), WRONG, ids=lambda x: getattr(x, "__name__", str(x)))
def test_a_wrong_value_gets_one_line_with_name_value_and_what_is_wanted(config, name, value, wanted):
    with pytest.raises(ValueError) as error:
        config(**{name: value})
    assert str(error.value) == f"{name} must be {wanted}, got {value!r}"


@pytest.mark.parametrize(
    ("make", "name", "value", "in_float32"),
    [
        (OptimizerConfig, "peak_lr", 1e39, "inf"),
        (OptimizerConfig, "peak_lr", 10**400, "inf"),
        (OptimizerConfig, "peak_lr", 1e-39, "0.0"),
        (OptimizerConfig, "epsilon", 1e-50, "0.0"),
        (OptimizerConfig, "weight_decay", 1e39, "inf"),
        (OptimizerConfig, "clip_norm", 3.5e38, "inf"),
        (OptimizerConfig, "b1", 1 - 1e-9, "1.0"),
        (OptimizerConfig, "b2", 1 - 1e-9, "1.0"),
        (TrainConfig, "label_smoothing", 1 - 1e-9, "1.0"),
        (TrainConfig, "ema", 1 - 1e-9, "1.0"),
        (TransformerConfig, "dropout", 1 - 1e-9, "1.0"),
        (LanguageModelConfig, "attention_dropout", 1 - 1e-9, "1.0"),
        (partial(DecodingOptions, beam=2), "length_penalty", -1e39, "-inf"),
    ],
)
def test_a_value_that_float32_makes_another_kind_of_number_is_refused(make, name, value, in_float32):
    """The device has it as infinity, as 0 or as 1, where the config has promised that it is none."""
    with pytest.raises(ValueError) as error:
        make(**{name: value})
    assert name in str(error.value).split()[0]
    assert str(error.value).endswith(f", got {value!r}, which is {in_float32} in float32")


def test_float32_is_what_the_device_has():
    for value in (0.1, 1 - 1e-9, 3.4e38, -3.5e38, 1e-39, 1.2e-38, 0.0, -1e-3):
        with np.errstate(over="ignore"):
            on_device = jax.jit(lambda x, one: x * one)(np.float32(value), np.float32(1))
        assert float32(value) == float(on_device), value


def test_the_edges_are_right():
    OptimizerConfig(warmup_steps=0, final_lr_fraction=0.0, b1=0.0, b2=0.0, weight_decay=0.0, clip_norm=0.0)
    OptimizerConfig(final_lr_fraction=1.0, peak_lr=1, weight_decay=1)
    OptimizerConfig(peak_lr=3.4e38, epsilon=1e-37, weight_decay=1e-50, b2=1 - 1e-7, warmup_steps=2**31 - 1)
    DecodingOptions(sample=True, temperature=1e39, top_p=1e-50)
    TrainConfig(steps=2**31 - 1, seed=2**32 - 1, save_every=10**12, log_every=10**400)
    TrainConfig(
        steps=1, grad_accumulation_steps=1, logits_chunk=0, seed=0, label_smoothing=0.0, log_every=1, max_to_keep=1
    )
