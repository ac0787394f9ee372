"""A config that no model can have is refused in one line that names field, value, and what is wanted."""

import dataclasses

import pytest

from model.config import BlockConfig, LanguageModelConfig, TransformerConfig

WRONG = [
    *[
        (name, bad, "positive whole number")
        for name in ("d_model", "num_heads", "d_ff", "max_length")
        for bad in (0, -1)
    ],
    *[(name, bad, "positive whole number") for name in ("num_kv_heads", "d_k", "d_v") for bad in (0, 1.5)],
    ("d_model", 8.0, "positive whole number"),
    ("d_model", "512", "positive whole number"),
    ("num_heads", True, "positive whole number"),
    ("activation", "swish", "'relu', 'gelu'"),
    ("norm_position", "middle", "'pre', 'post'"),
    ("positions", "rotary", "'sinusoidal', 'learned', 'none'"),
    ("biases", True, "'all', 'feed_forward', 'none'"),
    ("dtype", "bf16", "'float32', 'bfloat16', 'float16', 'float64'"),
    *[(name, bad, "[0, 1)") for name in ("dropout", "attention_dropout") for bad in (-0.1, 1, 1.5, float("nan"))],
    *[(name, bad, "[0, 1)") for name in ("dropout", "attention_dropout") for bad in (None, "0.1", True)],
]


@pytest.mark.parametrize("config", [TransformerConfig, LanguageModelConfig])
@pytest.mark.parametrize(("field", "value", "wanted"), WRONG)
def test_bad_values(without_shape_checks, config, field, value, wanted):
    with pytest.raises(ValueError) as error:
        config(**{field: value})
    message = str(error.value)
    assert field in message and str(value) in message and wanted in message and "\n" not in message


@pytest.mark.parametrize(
    ("config", "field", "value", "wanted"),
    [
        (TransformerConfig, "num_encoder_layers", 0, "positive whole number"),
        (TransformerConfig, "num_decoder_layers", -2, "positive whole number"),
        (LanguageModelConfig, "num_layers", 0, "positive whole number"),
        (TransformerConfig, "embeddings", "one", "'shared', 'tied', 'separate'"),
        (LanguageModelConfig, "embeddings", "shared", "'tied', 'separate'"),
    ],
)
def test_bad_values_of_one_model(without_shape_checks, config, field, value, wanted):
    with pytest.raises(ValueError) as error:
        config(**{field: value})
    message = str(error.value)
    assert field in message and str(value) in message and wanted in message and "\n" not in message


def test_heads_must_divide():
    with pytest.raises(ValueError, match=r"d_model must be divisible by num_heads.*d_model=10 and num_heads=4"):
        BlockConfig(d_model=10, num_heads=4)
    assert BlockConfig(d_model=10, num_heads=4, d_k=3).key_width == 3
    with pytest.raises(ValueError, match=r"num_kv_heads must divide num_heads.*num_kv_heads=3 and num_heads=8"):
        BlockConfig(num_kv_heads=3)


def test_defaults_are_filled_in():
    config = BlockConfig(d_model=12, num_heads=3)
    assert (config.kv_heads, config.key_width, config.value_width) == (3, 4, 4)
    config = BlockConfig(d_model=12, num_heads=4, num_kv_heads=2, d_k=5, d_v=2)
    assert (config.kv_heads, config.key_width, config.value_width) == (2, 5, 2)
    assert BlockConfig(d_model=12, num_heads=4, d_k=5).value_width == 5
    biased = {
        name: (c.attention_bias, c.feed_forward_bias)
        for name in ("all", "feed_forward", "none")
        for c in [BlockConfig(biases=name)]
    }
    assert biased == {"all": (True, True), "feed_forward": (False, True), "none": (False, False)}


def test_configs_are_values():
    config = LanguageModelConfig()
    assert hash(config) == hash(LanguageModelConfig()) and config == LanguageModelConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.d_model = 3
    with pytest.raises(ValueError, match="dropout"):
        dataclasses.replace(config, dropout=2.0)
