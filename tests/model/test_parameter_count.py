"""Parameters by formula and by tree."""

import math

import jax
import jax.numpy as jnp
import pytest

from model.config import LanguageModelConfig, TransformerConfig
from model.language_model import LanguageModel
from model.transformer import Transformer
from tests.model.parameter_count import count_parameters
from tests.model.samples import combinations, named

OPTIONS = {
    "num_kv_heads": (None, 2),
    "widths": ((None, None), (3, None), (5, 2)),
    "norm_position": ("pre", "post"),
    "positions": ("sinusoidal", "learned", "none"),
    "biases": ("all", "feed_forward", "none"),
}


def counted(model, *vocab_sizes):
    """By tree."""
    tokens = [jax.ShapeDtypeStruct((1, 1), jnp.int32)] * len(vocab_sizes)
    params = jax.eval_shape(model.init, jax.random.key(0), *tokens)["params"]
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))


def sizes(widths, **row):
    return {"d_model": 12, "num_heads": 4, "d_k": widths[0], "d_v": widths[1], "d_ff": 20, "max_length": 30, **row}


@pytest.mark.parametrize("row", combinations(embeddings=("tied", "separate"), **OPTIONS), ids=named)
def test_language_models(row):
    config = LanguageModelConfig(**sizes(**row), num_layers=3)
    assert count_parameters(config, 17) == counted(LanguageModel(config, 17), 17)


@pytest.mark.parametrize("row", combinations(embeddings=("shared", "tied", "separate"), **OPTIONS), ids=named)
def test_transformers(row):
    config = TransformerConfig(**sizes(**row), num_encoder_layers=2, num_decoder_layers=3)
    vocab_sizes = (17, 17) if config.embeddings == "shared" else (17, 19)
    assert count_parameters(config, *vocab_sizes) == counted(Transformer(config, *vocab_sizes), *vocab_sizes)


def gpt2(embeddings="tied"):
    return LanguageModelConfig(
        d_model=768,
        num_heads=12,
        d_ff=3072,
        num_layers=12,
        max_length=1024,
        activation="gelu",
        positions="learned",
        biases="all",
        embeddings=embeddings,
    )


def test_gpt2_small():
    assert count_parameters(gpt2(), 50257) == 124_439_808
    assert counted(LanguageModel(gpt2(), 50257), 50257) == 124_439_808
    assert count_parameters(gpt2("separate"), 50257) == 124_439_808 + 38_597_376


@pytest.mark.parametrize(
    ("changes", "millions"),
    [
        ({}, 63.05),
        ({"num_heads": 1}, 63.05),
        ({"num_heads": 32}, 63.05),
        ({"d_k": 16, "d_v": 64}, 55.97),
        ({"d_k": 32, "d_v": 64}, 58.33),
        ({"num_encoder_layers": 2, "num_decoder_layers": 2}, 33.64),
        ({"num_encoder_layers": 4, "num_decoder_layers": 4}, 48.35),
        ({"num_encoder_layers": 8, "num_decoder_layers": 8}, 77.75),
        ({"d_model": 256, "d_k": 32}, 26.82),
        ({"d_model": 1024, "d_k": 128}, 163.82),
        ({"d_ff": 1024}, 50.45),
        ({"d_ff": 4096}, 88.24),
        ({"d_model": 1024, "d_ff": 4096, "num_heads": 16}, 214.17),
    ],
)
def test_the_rows_of_the_paper(changes, millions):
    """Table 3 with a shared vocabulary of 37,000 and no attention biases."""
    config = TransformerConfig(**{"norm_position": "post", "embeddings": "shared", **changes})
    assert round(count_parameters(config, 37_000, 37_000) / 1e6, 2) == millions
