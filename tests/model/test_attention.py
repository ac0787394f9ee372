"""Scaled dot-product attention: the formula, and what masks promise."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from model.attention import attention_scores, attention_weights, scaled_dot_product_attention
from model.dropout import Dropout
from model.masks import causal_mask
from model.matmul import matmul
from tests.model import reference
from tests.model.samples import assert_finite, assert_near, assert_same_bits, compiled, normal, put

NARROW = {"float32": 1e-5, "bfloat16": 0.03, "float16": 0.004}

B, T, S = 2, 4, 5
CAUSAL, SQUARE = (np.tri(queries, S, S - queries, dtype=bool)[None, None] for queries in (T, S))
PADDING = np.array([[True, True, False, True, True], [False, True, True, False, True]])[:, None, None]
MASKS = {
    "none": None,
    "causal": CAUSAL,
    "padding": PADDING,
    "causal and padding": CAUSAL & PADDING,
    "by head": np.random.default_rng(0).random((B, 4, T, S)) < 0.5,
    "by query": np.array([True, False, True, True])[None, None, :, None],
}


def operands(heads=4, groups=4, queries=T, keys=S, d_k=6, d_v=3, dtype=np.float32):
    return (
        normal(B, heads, queries, d_k, seed=1, dtype=dtype),
        normal(B, groups, keys, d_k, seed=2, dtype=dtype),
        normal(B, groups, keys, d_v, seed=3, dtype=dtype),
    )


attend = compiled(scaled_dot_product_attention, "dtype")


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("groups", [4, 2, 1])
def test_against_the_formula(mask, groups):
    q, k, v = operands(groups=groups)
    wanted = reference.attention(*map(reference.float64, (q, k, v)), MASKS[mask])
    for dtype, tolerance in NARROW.items():
        result = attend(q, k, v, MASKS[mask], dtype=dtype)
        assert result.output.dtype == result.weights.dtype == jnp.float32
        assert_near(tuple(result), wanted, tolerance)


@pytest.mark.parametrize("groups", [4, 2])
def test_against_the_formula_in_float64(x64, groups):
    q, k, v = operands(groups=groups, dtype=np.float64)
    result = attend(q, k, v, MASKS["by head"], dtype="float64")
    assert result.output.dtype == result.weights.dtype == jnp.float64
    assert_near(tuple(result), reference.attention(*map(np.asarray, (q, k, v)), MASKS["by head"]), 1e-14)


@pytest.mark.parametrize("mask", ["causal and padding", "by head"])
def test_gradients_against_finite_differences(x64, mask):
    arrays = operands(groups=2, dtype=np.float64)
    directions = [normal(*x.shape, seed=9, dtype=np.float64) for x in arrays]
    cotangent = normal(B, 4, T, 3, seed=8, dtype=np.float64)

    def loss(arrays):
        y = scaled_dot_product_attention(*arrays, jnp.asarray(MASKS[mask]), dtype="float64").output
        return (y * cotangent).sum()

    gradients, loss, step = compiled(jax.grad(loss))(arrays), compiled(loss), 1e-5
    for which in range(3):

        def along(s, which=which):
            return loss([x + s * d if i == which else x for i, (x, d) in enumerate(zip(arrays, directions))])

        slope = (along(step) - along(-step)) / (2 * step)
        assert abs(slope - (gradients[which] * directions[which]).sum()) < 1e-8


# What masks promise, in every combination of options.

OPTIONS = list(itertools.product(NARROW, (4, 2), (False, True)))
in_every_combination = pytest.mark.parametrize(("dtype", "groups", "dropped"), OPTIONS)


def run(q, k, v, mask, cotangent, *, dtype, dropped):
    """Output, weights, and the gradients of (output · cotangent) with respect to q, k and v."""
    drop = Dropout(jax.random.key(0), 0.5, 0.25) if dropped else None

    def output(q, k, v):
        return scaled_dot_product_attention(q, k, v, mask, drop=drop, dtype=dtype)

    y, backward, weights = jax.vjp(lambda *x: tuple(output(*x)), q, k, v, has_aux=True)
    return y, weights, backward(cotangent)


run_compiled = compiled(run, "dtype", "dropped", optimized=True)


def square(groups):
    """Self-attention of 5 positions: q, k, v, and a cotangent."""
    return *operands(groups=groups, queries=5), normal(B, 4, 5, 3, seed=4)


@in_every_combination
def test_a_query_that_sees_nothing_gets_zero_and_leaves_no_trace(dtype, groups, dropped):
    q, k, v, g = square(groups)
    dead = np.s_[:, :, 1]
    mask = put(SQUARE, dead, False)
    y, weights, (dq, dk, dv) = run_compiled(q, k, v, mask, g, dtype=dtype, dropped=dropped)
    assert not y[dead].any() and not weights[dead].any() and not dq[dead].any()
    assert_finite((y, weights, dq, dk, dv))
    # Neither what it asked nor what comes back to it matters to anybody.
    other = run_compiled(put(q, dead, 7), k, v, mask, put(g, dead, 6e4), dtype=dtype, dropped=dropped)
    assert_same_bits((y, weights, (dq, dk, dv)), other)
    if not dropped:
        kept = [0, 2, 3, 4]
        without = run_compiled(q[:, :, kept], k, v, mask[:, :, kept], g[:, :, kept], dtype=dtype, dropped=dropped)
        with_row = (y[:, :, kept], weights[:, :, kept], (dq[:, :, kept], dk, dv))
        assert_near(with_row, without, 1e-6)


@in_every_combination
def test_a_key_that_no_query_sees_may_hold_nan(dtype, groups, dropped):
    q, k, v, g = square(groups)
    hidden = (slice(None), slice(None), 2)
    mask = SQUARE & PADDING[:1]
    wanted = run_compiled(q, k, v, mask, g, dtype=dtype, dropped=dropped)
    assert_finite(wanted)
    for anything in (jnp.nan, jnp.inf, 3e38):
        arrays = q, put(k, hidden, anything), put(v, hidden, anything)
        result = run_compiled(*arrays, mask, g, dtype=dtype, dropped=dropped)
        assert_same_bits(result, wanted, anything)
    assert not wanted[2][1][hidden].any() and not wanted[2][2][hidden].any()


@in_every_combination
def test_the_future_may_hold_anything_finite(dtype, groups, dropped):
    """Outputs at 0 … 2 and their gradients do not move when positions 3 and 4 become huge."""
    q, k, v, g = square(groups)
    now, later = np.s_[:, :, :3], np.s_[:, :, 3:]
    g = put(g, later, 0)

    def seen(result):
        y, weights, gradients = result
        return y[now], weights[now], [x[now] for x in gradients]

    wanted = run_compiled(q, k, v, SQUARE, g, dtype=dtype, dropped=dropped)
    assert_finite(wanted)
    for anything in (-1.5, 1e30, 3e38, -3e38):
        for which in range(3):
            arrays = [put(x, later, anything) if i == which else x for i, x in enumerate((q, k, v))]
            result = run_compiled(*arrays, SQUARE, g, dtype=dtype, dropped=dropped)
            assert_same_bits(seen(result), seen(wanted), (anything, "qkv"[which]))


@in_every_combination
def test_gradients_flow_to_the_past_and_not_to_the_future(dtype, groups, dropped):
    """The gradient of output 2 is exactly 0 for every later input, and is not for itself and earlier ones."""
    q, k, v, g = square(groups)
    g = put(np.zeros_like(g), np.s_[:, :, 2], g[:, :, 2])
    _, _, (dq, dk, dv) = run_compiled(q, k, v, SQUARE, g, dtype=dtype, dropped=dropped)
    for x in (dk, dv):
        assert not x[:, :, 3:].any()
        assert x[:, :, :3].any(axis=(0, 1, 3)).all()
    assert not dq[:, :, 3:].any() and not dq[:, :, :2].any() and dq[:, :, 2].any()


def test_op_by_op_as_compiled():
    q, k, v, g = square(2)
    last, mask = np.s_[:, :, 4], put(SQUARE, np.s_[:, :, 1], False)
    arguments = put(q, last, 1e30), put(k, last, 3e38), v, mask, put(g, last, 0)
    eager = jax.device_get(run(*map(jnp.asarray, arguments), dtype="bfloat16", dropped=True))
    assert not eager[0][:, :, 1].any()
    assert_finite(eager)
    assert_near(eager, run_compiled(*arguments, dtype="bfloat16", dropped=True), 1e-6)


# Single cases that went wrong elsewhere.


def test_true_means_may_attend():
    zero, value = np.zeros((1, 1, 3, 2), np.float32), np.array([1, 2, 9], np.float32)[None, None, :, None]
    mask = np.array([True, True, False])[None, None, None, :]
    assert attend(zero[:, :, :1], zero, value, mask).output.item() == 1.5


def test_masks_of_different_shapes_that_mean_the_same():
    q, k, v = operands()
    mask = MASKS["padding"]
    wanted = tuple(attend(q, k, v, mask))
    for shape in ((B, 1, T, S), (B, 4, T, S), (B, 4, 1, S)):
        assert_near(tuple(attend(q, k, v, np.broadcast_to(mask, shape))), wanted, 1e-7)


def test_the_newest_query_equals_the_last_row():
    q, k, v = operands(queries=6, keys=6)
    whole = attend(q, k, v, np.tri(6, dtype=bool)[None, None]).output
    for newest in (1, 2):
        mask = causal_mask(newest, 6)
        assert_near(attend(q[:, :, -newest:], k, v, mask).output, whole[:, :, -newest:], 1e-6)


@pytest.mark.parametrize("d_k", [1, 4, 64])
def test_a_bias_is_not_scaled(d_k):
    scores = attention_scores(jnp.zeros((1, 1, 1, d_k)), jnp.zeros((1, 1, 2, d_k)))
    bias = jnp.log(jnp.array([1.0, 3.0]))[None, None, None, :]
    assert np.allclose(attention_weights(scores + bias), [[[[0.25, 0.75]]]], atol=1e-6)


def test_a_float32_bias_on_bfloat16_scores_equals_the_boolean_mask():
    q, k, v = operands()
    bias = np.broadcast_to(np.where(CAUSAL, 0, -1e9).astype(np.float32), (B, 4, T, S))

    @compiled
    def biased(q, k, v):
        weights = attention_weights(attention_scores(q, k, "bfloat16") + bias)
        return matmul(weights, v, "bfloat16"), weights

    assert_near(biased(q, k, v), tuple(attend(q, k, v, CAUSAL, dtype="bfloat16")), 1e-6)


@pytest.mark.parametrize("dtype", NARROW)
def test_a_first_row_that_only_sees_padding(dtype):
    """Causal and padding together, where floats added to scores would overflow or show a hidden key again."""
    q, k, v, g = square(4)
    mask = put(SQUARE, np.s_[..., 0], False)
    y, weights, gradients = run_compiled(q, k, v, mask, g, dtype=dtype, dropped=False)
    assert not weights[~np.broadcast_to(mask, weights.shape)].any() and not y[:, :, 0].any()
    assert_finite((y, weights, gradients))


@pytest.mark.parametrize("mask", MASKS)
def test_weights_are_a_distribution_over_the_visible_keys(mask):
    q, k, v = operands()
    weights = attend(100 * q, k, v, MASKS[mask]).weights
    visible = np.broadcast_to(True if MASKS[mask] is None else MASKS[mask], weights.shape)
    assert (weights >= 0).all() and not weights[~visible].any()
    assert_near(weights.sum(axis=-1), visible.any(axis=-1), 1e-6)


def test_scores_have_variance_one_for_every_width():
    for d_k in (4, 256):
        scores = compiled(attention_scores)(normal(4, 4, 64, d_k), normal(4, 4, 64, d_k, seed=1))
        assert abs(scores.var() - 1) < 0.1


def test_a_mask_that_is_no_mask_is_refused(without_shape_checks):
    q, k, v = map(jnp.asarray, operands())
    with pytest.raises(TypeError, match="must be boolean"):
        scaled_dot_product_attention(q, k, v, jnp.zeros((1, 1, T, S)))
    with pytest.raises(ValueError, match=r"\(B, H, T, S\) = \(2, 4, 4, 5\).*got \(4, 5\)"):
        scaled_dot_product_attention(q, k, v, jnp.ones((T, S), bool))
    with pytest.raises(ValueError, match=r"\(2, 4, 4, 5\).*\(1, 1, 5, 4\)"):
        attention_weights(jnp.zeros((2, 4, T, S)), jnp.ones((1, 1, S, T), bool))


@pytest.mark.parametrize(
    ("query", "key", "value", "message"),
    [
        ((2, 4, 3), (2, 4, 3, 5), (2, 4, 3, 5), "attention wants query"),
        ((2, 4, 3, 5), (2, 4, 3, 6), (2, 4, 3, 5), "agree in batch and head width"),
        ((2, 4, 3, 5), (1, 4, 3, 5), (1, 4, 3, 5), "agree in batch and head width"),
        ((2, 4, 3, 5), (2, 4, 3, 5), (2, 4, 2, 5), "agree in batch, heads and length"),
        ((2, 4, 3, 5), (2, 3, 3, 5), (2, 3, 3, 5), "must divide the query heads"),
    ],
)
def test_shapes_that_do_not_fit_are_named(without_shape_checks, query, key, value, message):
    with pytest.raises(ValueError, match=message) as error:
        scaled_dot_product_attention(jnp.zeros(query), jnp.zeros(key), jnp.zeros(value))
    assert str(query) in str(error.value) and str(key) in str(error.value) and "\n" not in str(error.value)
