"""Layer norm: the formula, in float32 whatever the size of the mean."""

import jax.numpy as jnp
import numpy as np
import pytest

from model.normalization import init_layer_norm, layer_norm
from tests.model import reference
from tests.model.samples import assert_near, compiled, normal

norm = compiled(layer_norm)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(2, 3, 5), (4,)])
def test_against_the_formula(bias, shape):
    params = {"scale": normal(shape[-1], seed=1)} | ({"bias": normal(shape[-1], seed=2)} if bias else {})
    x = 3 * normal(*shape) + 2
    wanted = reference.layer_norm(reference.float64(params), reference.float64(x))
    assert_near(norm(params, x), wanted, 1e-6)


def test_against_the_formula_in_float64(x64):
    params = {"scale": normal(5, seed=1, dtype=np.float64), "bias": normal(5, seed=2, dtype=np.float64)}
    x = normal(2, 5, dtype=np.float64)
    result = norm(params, x)
    assert result.dtype == np.float64
    assert_near(result, reference.layer_norm(params, x), 1e-14)


def test_a_large_mean_costs_no_precision():
    """E[x²] − E[x]² would be 0 or negative here."""
    x = np.array([[10_000, 10_001, 10_002, 10_003]], np.float32)
    params = {"scale": np.ones(4, np.float32)}
    assert_near(norm(params, x), reference.layer_norm({"scale": np.ones(4)}, x.astype(np.float64)), 1e-5)


def test_a_constant_row_gives_the_bias():
    params = {"scale": normal(4, seed=1), "bias": normal(4, seed=2)}
    assert np.array_equal(norm(params, np.full((2, 4), 7, np.float32)), np.tile(params["bias"], (2, 1)))


def test_it_starts_as_the_plain_norm():
    params = init_layer_norm(3)
    assert np.array_equal(params["scale"], jnp.ones(3)) and np.array_equal(params["bias"], jnp.zeros(3))
    assert set(init_layer_norm(3, bias=False)) == {"scale"}
