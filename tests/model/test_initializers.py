"""How parameters start."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from model.config import LanguageModelConfig, TransformerConfig
from model.initializers import init_embedding, init_linear
from model.language_model import LanguageModel
from model.multi_head import init_multi_head_attention
from model.transformer import Transformer
from tests.model.samples import compiled

init_attention = compiled(init_multi_head_attention, "d_model", "num_heads", "num_kv_heads", "d_k", "d_v", "bias")


@pytest.mark.parametrize("heads", [1, 8])
def test_projections_have_the_same_spread_for_any_number_of_heads(heads):
    """√(2 / (512 + 512)) = 0.0442; a packed [512, 1536] matrix would start at 0.0313."""
    params = init_attention(jax.random.key(0), 512, heads, heads, 512 // heads, 512 // heads)
    kernels = [params[name]["kernel"] for name in ("query", "key", "value", "output")]
    for kernel in kernels:
        assert kernel.shape == (512, 512) and kernel.dtype == np.float32
        assert abs(kernel.std() - 0.0442) < 0.03 * 0.0442
        assert abs(kernel.mean()) < 1e-3 and np.abs(kernel).max() <= np.sqrt(6 / 1024)
    assert all(abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.01 for a in kernels for b in kernels if a is not b)


def test_a_rectangular_kernel_and_a_zero_bias():
    params = compiled(init_linear, "fan_in", "fan_out", "bias")(jax.random.key(0), 100, 500, True)
    assert abs(params["kernel"].std() - np.sqrt(2 / 600)) < 0.03 * np.sqrt(2 / 600)
    assert np.array_equal(params["bias"], np.zeros(500))


def test_embeddings_have_length_one():
    table = compiled(init_embedding, "rows", "d_model")(jax.random.key(0), 1000, 64)
    assert abs(table.std() - 1 / 8) < 0.03 / 8 and abs(table.mean()) < 0.003
    assert abs((table**2).sum(axis=1).mean() - 1) < 0.02


SIZES = {"d_model": 8, "num_heads": 2, "d_ff": 16, "max_length": 16, "positions": "learned", "biases": "all"}


@pytest.mark.parametrize("kind", ["language model", "transformer"])
def test_a_whole_model(kind, monkeypatch):
    """Biases 0 and scales 1; a key of its own for each kernel and table of each layer; float32 throughout."""

    def the_key(key, shape, *_):
        return jnp.broadcast_to(jax.random.key_data(key)[-1].astype(jnp.float32), shape)

    monkeypatch.setattr(jax.random, "uniform", the_key)
    monkeypatch.setattr(jax.random, "normal", the_key)
    tokens = jnp.zeros((1, 3), jnp.int32)
    if kind == "language model":
        model = LanguageModel(LanguageModelConfig(**SIZES, num_layers=2, embeddings="separate", dtype="bfloat16"), 11)
        params = compiled(model.init)(jax.random.key(0), tokens)["params"]
    else:
        layers = {"num_encoder_layers": 2, "num_decoder_layers": 2}
        model = Transformer(TransformerConfig(**SIZES, **layers, embeddings="separate", dtype="bfloat16"), 11, 13)
        params = compiled(model.init)(jax.random.key(0), tokens, tokens)["params"]
    drawn = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        name, stacked = path[-1].key, path[0].key in ("layers", "encoder", "decoder")
        assert leaf.dtype == np.float32
        if name in ("bias", "scale"):
            assert (leaf == (name == "scale")).all()
        else:
            assert name in ("kernel", "table")
            drawn += [x.flat[0] for x in leaf] if stacked else [leaf.flat[0]]
    assert len(set(drawn)) == len(drawn) == (2 * 6 + 3 if kind == "language model" else 2 * 6 + 2 * 10 + 5)
