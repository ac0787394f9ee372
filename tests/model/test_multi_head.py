"""Multi-head attention: Concat(head_1 … head_H) W^O."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from model.multi_head import init_multi_head_attention, merge_heads, multi_head_attention, split_heads
from tests.model import reference
from tests.model.samples import assert_near, assert_same_bits, compiled, normal, parameters_like

D, T, S = 12, 4, 5
VALID = np.array([[True, True, True, False, True], [False, True, True, True, False]])
PADDING, CAUSAL = VALID[:, None, None], np.tri(S, dtype=bool)[None, None]
WIDTHS = {  # num_heads, num_kv_heads, d_k, d_v
    "as the paper": (4, 4, 3, 3),
    "free widths": (3, 3, 5, 2),
    "grouped": (4, 2, 3, 4),
    "one key head": (4, 1, 3, 3),
    "one head": (1, 1, 12, 12),
}


def parameters(widths, bias, dtype=np.float32):
    shapes = jax.eval_shape(lambda key: init_multi_head_attention(key, D, *widths, bias), jax.random.key(0))
    return parameters_like(shapes, dtype=dtype)


attend = compiled(multi_head_attention, "num_heads", "num_kv_heads", "rope", "dtype")


@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("bias", [False, True])
def test_self_attention_against_the_formula(widths, bias):
    heads, groups, *_ = WIDTHS[widths]
    params, x = parameters(WIDTHS[widths], bias), normal(2, S, D)
    mask = CAUSAL & PADDING
    result = attend(params, x, x, mask, num_heads=heads, num_kv_heads=groups)
    x = reference.float64(x)
    wanted = reference.multi_head_attention(reference.float64(params), x, x, mask, heads, groups)
    assert_near(tuple(result), wanted, 1e-5)


@pytest.mark.parametrize("widths", ["as the paper", "free widths", "grouped"])
def test_cross_attention_against_the_formula_in_float64(x64, widths):
    heads, groups, *_ = WIDTHS[widths]
    params = parameters(WIDTHS[widths], True, np.float64)
    x, memory = normal(2, T, D, dtype=np.float64), normal(2, S, D, seed=1, dtype=np.float64)
    mask = PADDING
    result = attend(params, x, memory, mask, num_heads=heads, num_kv_heads=groups, dtype="float64")
    arguments = reference.float64({"params": params, "x": x, "memory": memory})
    wanted = reference.multi_head_attention(*arguments.values(), mask, heads, groups)
    assert result.output.dtype == jnp.float64
    assert_near(tuple(result), wanted, 1e-13)


def test_heads_are_split_and_merged():
    x = normal(2, 3, 8)
    heads = split_heads(jnp.asarray(x), 4)
    assert heads.shape == (2, 4, 3, 2)
    assert np.array_equal(heads[1, 2, 0], x[1, 0, 4:6])
    assert np.array_equal(merge_heads(heads), x)


@pytest.mark.parametrize("widths", ["as the paper", "grouped"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_hidden_memory_changes_no_bit(widths, dtype):
    """Not in the output, the weights, or the gradients of parameters, queries and visible memory."""
    heads, groups, *_ = WIDTHS[widths]
    params, x, memory = parameters(WIDTHS[widths], True), normal(2, T, D), normal(2, S, D, seed=1)

    @compiled
    def run(memory, mask, cotangent):
        def output(params, x, memory):
            counts = {"num_heads": heads, "num_kv_heads": groups}
            return tuple(multi_head_attention(params, x, memory, mask, dtype=dtype, **counts))

        y, backward, weights = jax.vjp(output, jax.tree.map(jnp.asarray, params), jnp.asarray(x), memory, has_aux=True)
        return y, weights, backward(cotangent)

    wanted = run(memory, PADDING, normal(2, T, D, seed=2))
    other = np.where(VALID[..., None], memory, 100 * normal(2, S, D, seed=3))
    result = run(other, PADDING, normal(2, T, D, seed=2))
    assert_same_bits(result, wanted)
    assert not result[2][2][~VALID].any() and result[2][2][VALID].all()


def test_queries_and_keys_are_rotated_and_values_are_not():
    heads, groups, *_ = WIDTHS["grouped"]
    params, x = parameters(WIDTHS["grouped"], False), normal(1, 3, D)
    positions = np.array([[5, 6, 9]])
    seen = []

    def rope(x, positions):
        seen.append((x.shape, positions.shape))
        return -x

    counts = {"num_heads": heads, "num_kv_heads": groups}
    result = attend(params, x, x, rope=rope, positions=positions, **counts)
    assert seen == [((1, 4, 3, 3), (1, 3)), ((1, 2, 3, 3), (1, 3))]
    unrotated = attend(params, x, x, **counts)
    assert_near(tuple(result), tuple(unrotated), 1e-6)  # (−q)·(−k) = q·k; a rotated value would change the sign
