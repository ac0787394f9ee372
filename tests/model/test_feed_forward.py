"""The feed-forward network: f(x W₁ + b₁) W₂ + b₂ at each position by itself."""

import jax
import numpy as np
import pytest

from model.feed_forward import ACTIVATIONS, feed_forward, init_feed_forward
from tests.model import reference
from tests.model.samples import assert_near, assert_same_bits, compiled, normal, parameters_like

apply = compiled(feed_forward, "activation", "dtype")


def parameters(bias):
    return parameters_like(jax.eval_shape(lambda key: init_feed_forward(key, 6, 10, bias), jax.random.key(0)))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("bias", [True, False])
def test_against_the_formula(activation, bias):
    params, x = parameters(bias), normal(2, 3, 6)
    wanted = reference.feed_forward(reference.float64(params), reference.float64(x), activation)
    for dtype, tolerance in {"float32": 1e-6, "bfloat16": 0.03, "float16": 4e-3}.items():
        assert_near(apply(params, x, ACTIVATIONS[activation], dtype), wanted, tolerance)


def test_positions_are_by_themselves():
    params, x = parameters(True), normal(1, 3, 6)
    changed = np.concatenate([x[:, :2], 9 * x[:, 2:]], axis=1)
    one, other = apply(params, x), apply(params, changed)
    assert_same_bits(one[:, :2], other[:, :2])
    assert (one[:, 2] != other[:, 2]).all()
