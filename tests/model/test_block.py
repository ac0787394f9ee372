"""Encoder and decoder block: H = X + MHA(LN(X)), Y = H + FFN(LN(H)), or with the norms after the sums."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from model.block import decoder_block, encoder_block, init_decoder_block, init_encoder_block
from model.components import default_components
from model.config import BlockConfig
from tests.model import reference
from tests.model.samples import assert_near, combinations, compiled, named, normal, parameters_like

T, S = 4, 3
CAUSAL = np.tri(T, dtype=bool)[None, None]
VALID = np.array([[True, False, True], [True, True, False]])[:, None, None]
ROWS = combinations(
    norm_position=("pre", "post"),
    activation=("relu", "gelu"),
    biases=("all", "feed_forward", "none"),
    widths=("equal", "free", "grouped"),
    dtype=("float32", "float64"),
)


WIDTHS = {"equal": {}, "free": {"d_k": 3, "d_v": 5}, "grouped": {"num_kv_heads": 2}}


def config_of(widths="equal", **row):
    return BlockConfig(d_model=8, num_heads=4, d_ff=12, **WIDTHS[widths], **row)


def parameters(init, config, dtype=np.float32):
    return parameters_like(
        jax.eval_shape(lambda key: init(key, config, default_components(config)), jax.random.key(0)), dtype=dtype
    )


def apply(block, config):
    return compiled(
        lambda params, *args, **masks: block(
            params, *args, config=config, components=default_components(config), **masks
        )
    )


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_against_the_formula(row):
    with jax.enable_x64(row["dtype"] == "float64"):
        config, dtype, tolerance = (
            config_of(**row),
            np.dtype(row["dtype"]),
            {"float32": 1e-5, "float64": 1e-12}[row["dtype"]],
        )
        x, memory = normal(2, T, 8, dtype=dtype), normal(2, S, 8, seed=1, dtype=dtype)
        wide_x, wide_memory = reference.float64(x), reference.float64(memory)

        params = parameters(init_encoder_block, config, dtype)
        result = apply(encoder_block, config)(params, x, mask=CAUSAL)
        assert result[0].dtype == dtype
        assert_near(result, reference.encoder_block(reference.float64(params), wide_x, CAUSAL, config), tolerance)

        params = parameters(init_decoder_block, config, dtype)
        result = apply(decoder_block, config)(params, x, memory, mask=CAUSAL, memory_mask=VALID)
        assert result[0].dtype == dtype
        wanted = reference.decoder_block(reference.float64(params), wide_x, wide_memory, CAUSAL, VALID, config)
        assert_near(result, wanted, tolerance)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_pre_norm_block_with_silent_sublayers_is_the_identity(dtype):
    """To the last bit: the residual carries x itself, not its norm and not a rounded copy."""
    config, x, memory = config_of(biases="all", dtype=dtype), 100 * normal(2, T, 8), normal(2, S, 8, seed=1)

    def silent(params):
        return {
            name: part | {"output": jax.tree.map(np.zeros_like, part["output"])} if "output" in part else part
            for name, part in params.items()
        }

    params = silent(parameters(init_encoder_block, config))
    assert np.array_equal(apply(encoder_block, config)(params, x, mask=CAUSAL)[0], x)
    params = silent(parameters(init_decoder_block, config))
    assert np.array_equal(apply(decoder_block, config)(params, x, memory, mask=CAUSAL)[0], x)


def test_a_post_norm_block_ends_in_a_norm():
    config, x = config_of(norm_position="post"), normal(2, T, 8)
    params = parameters(init_encoder_block, config)
    params["feed_forward_norm"] = {"scale": np.ones(8, np.float32), "bias": np.zeros(8, np.float32)}
    y, _ = apply(encoder_block, config)(params, x)
    assert_near(y.mean(axis=-1), np.zeros((2, T)), 1e-6)
    assert_near(y.std(axis=-1), np.ones((2, T)), 1e-4)


def test_without_a_mask_everything_is_visible():
    config, x = config_of(), normal(2, T, 8)
    params = parameters(init_encoder_block, config)
    everything = np.ones((1, 1, T, T), bool)
    unmasked, masked = (apply(encoder_block, config)(params, x, mask=m) for m in (None, jnp.asarray(everything)))
    assert_near(unmasked, masked, 1e-6)
