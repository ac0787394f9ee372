"""One matrix product with its precision contract: operands rounded to the compute type, sums in float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.matmul import matmul
from tests.model.jaxprs import traced
from tests.model.samples import assert_near, compiled, normal, put

NARROW = ("bfloat16", "float16")


def rounded(x, dtype):
    """`x` rounded to `dtype`, as float64."""
    return np.asarray(x).astype(jnp.dtype(dtype)).astype(np.float64)


def product_and_gradients(a, b, g, dtype):
    y, backward = jax.vjp(lambda a, b: matmul(a, b, dtype), a, b)
    return (y, *backward(g))


product = compiled(lambda a, b, dtype="float32": matmul(a, b, dtype), "dtype")
run = compiled(product_and_gradients, "dtype", optimized=True)


def wanted(a, b, g, dtype):
    """The same in float64, of rounded operands: y = a b, da = g bᵀ, db = aᵀ g."""
    a, b, g = (rounded(x, dtype) for x in (a, b, g))
    da = g @ np.swapaxes(b, -1, -2)
    if b.ndim == 2:
        return a @ b, da, a.reshape(-1, a.shape[-1]).T @ g.reshape(-1, g.shape[-1])
    return a @ b, da, np.swapaxes(a, -1, -2) @ g


sizes = st.sampled_from([1, 2, 3, 7, 16, 33])


@settings(max_examples=20, deadline=None, derandomize=True, database=None)
@given(
    lead=st.lists(st.sampled_from([1, 2, 3]), max_size=2),
    t=sizes,
    n=sizes,
    m=sizes,
    batched=st.booleans(),
    dtype=st.sampled_from(NARROW),
)
def test_narrow_products_of_any_shape_equal_those_of_the_rounded_operands(lead, t, n, m, batched, dtype):
    a = normal(*lead, t, n, seed=1)
    b = normal(*(lead if batched else []), n, m, seed=2)
    g = normal(*lead, t, m, seed=3)
    result = run(a, b, g, dtype)
    assert all(x.dtype == jnp.float32 for x in result)
    assert_near(result, wanted(a, b, g, dtype), 1e-5)


def test_a_vector_times_a_matrix():
    assert_near(product(normal(3), normal(3, 2)), normal(3, dtype=np.float64) @ normal(3, 2, dtype=np.float64), 1e-6)


def swapped(x):
    return jnp.swapaxes(x, -1, -2)


USES = {
    "transposed result": lambda a, w, dtype: matmul(a, w, dtype).T + 1,
    "transposed operands": lambda a, w, dtype: matmul(w.T, a.T, dtype) * 2,
    "both": lambda a, w, dtype: matmul(w.T, a.T, dtype).T + 1,
    "heads": lambda a, w, dtype: (
        matmul(a.reshape(1, *a.shape), w, dtype).reshape(1, 6, 2, -1).transpose(0, 2, 1, 3) + 1
    ),
    "batched and transposed": lambda a, w, dtype: swapped(matmul(swapped(jnp.stack([a, a])), jnp.stack([a, a]), dtype)),
    "vmap over rows": lambda a, w, dtype: jax.vmap(lambda a: matmul(a, w, dtype))(a).T + 1,
    "vmap over both": lambda a, w, dtype: jax.vmap(lambda a, w: matmul(a, w, dtype).T)(
        jnp.stack([a, a]), jnp.stack([w, w])
    ),
    "vmap over columns": lambda a, w, dtype: jax.vmap(lambda w: matmul(a, w[:, None], dtype), in_axes=1)(w) + 1,
    "scan": lambda a, w, dtype: jax.lax.scan(
        lambda x, w: (matmul(x, w, dtype).T[:4].T, None), a[:, :4], jnp.stack([w[:4], w[:4]])
    )[0],
    "remat": lambda a, w, dtype: jax.checkpoint(lambda a, w: matmul(matmul(a, w, dtype).T, a, dtype))(a, w),
}


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("use", USES)
def test_narrow_products_run_however_they_are_used(use, dtype):
    """XLA's CPU backend fails at run time on a bfloat16 product whose result it stores transposed: dot(x, w).T + 1."""
    a, w = normal(6, 5), normal(5, 4, seed=1)

    def value_and_gradients(dtype):
        return jax.value_and_grad(lambda a, w: (USES[use](a, w, dtype) ** 2).sum(), argnums=(0, 1))

    assert_near(
        compiled(value_and_gradients(dtype), optimized=True)(a, w), compiled(value_and_gradients("float32"))(a, w), 0.05
    )


@pytest.mark.parametrize("dtype", NARROW)
def test_jacobian_and_second_derivative_by_reverse_mode(dtype):
    a, w = normal(3, 5), normal(5, 2, seed=1)
    jacobian = compiled(jax.jacrev(lambda w: matmul(jnp.asarray(a), w, dtype)))(w)
    assert_near(jacobian, np.einsum("tn,mp->tmnp", rounded(a, dtype), np.eye(2)), 1e-6)
    loss = lambda w: (matmul(jnp.asarray(a), w, dtype) ** 2).sum()  # noqa: E731
    twice = compiled(jax.grad(lambda w: jax.grad(loss)(w)[0, 0]))(w)
    column = 2 * rounded(a, dtype).T @ rounded(a, dtype)[:, 0]
    assert_near(twice, np.stack([column, np.zeros(5)], axis=1), 0.02)


@pytest.mark.parametrize("dtype", NARROW)
def test_sums_are_float32_forward_and_backward(dtype):
    """4,095 ones and 2⁻⁷: bfloat16 would count to 256, float16 to 2,048."""
    total, length = 4095 + 2**-7, 4096
    ones = np.ones(length, np.float32)
    last = put(ones, -1, 2**-7)
    assert product(ones[None], last[:, None], dtype) == total
    for a, b, g, which in (
        (ones[:1, None], last[None], ones[None], 1),  # da = g bᵀ sums over the columns
        (last[:, None], ones[:1, None], ones[:, None], 2),  # db = aᵀ g sums over the rows
    ):
        gradient = run(a, b, g, dtype)[which]
        assert gradient.item() == total


def test_the_cotangent_is_rounded_like_any_operand():
    one = np.ones((1, 1), np.float32)
    cotangent = np.full((1, 1), 1 + 2**-9, np.float32)
    for dtype, received in (("float32", 1 + 2**-9), ("float16", 1 + 2**-9), ("bfloat16", 1.0)):
        _, da, db = run(one, one, cotangent, dtype)
        assert (da.item(), db.item()) == (received, received)


@pytest.mark.parametrize("b_shape", [(5, 4), (2, 5, 4)])
def test_the_traced_products_are_narrow_with_wide_results(b_shape):
    """What makes it fast where it counts; a float32 cotangent meeting bfloat16 operands would be the slow path."""
    a, b, g = normal(2, 3, 5), normal(*b_shape), normal(2, 3, 4)
    products = [
        e
        for e in traced(lambda *x: product_and_gradients(*x, "bfloat16"), a, b, g)
        if e.primitive.name == "dot_general"
    ]
    assert len(products) == 3
    for e in products:
        assert [v.aval.dtype for v in e.invars] == [jnp.bfloat16, jnp.bfloat16]
        assert e.outvars[0].aval.dtype == jnp.float32


@pytest.mark.parametrize("b_shape", [(5, 4), (2, 5, 4)])
def test_float64_against_numpy_and_finite_differences(x64, b_shape):
    a, b, g = (normal(*s, dtype=np.float64) for s in ((2, 3, 5), b_shape, (2, 3, 4)))
    y, da, db = run(a, b, g, "float64")
    assert y.dtype == da.dtype == db.dtype == np.float64
    assert_near(y, a @ b, 1e-14)
    step, to_a, to_b = 1e-6, normal(2, 3, 5, seed=5, dtype=np.float64), normal(*b_shape, seed=6, dtype=np.float64)

    def along(s):
        return (g * product(a + s * to_a, b + s * to_b, "float64")).sum()

    slope = (along(step) - along(-step)) / (2 * step)
    assert abs(slope - (da * to_a).sum() - (db * to_b).sum()) < 1e-7


def test_float32_is_float32():
    """No TF32, no bfloat16 passes: the product is asked for at the highest precision."""
    products = [
        e
        for e in traced(lambda *x: product_and_gradients(*x, "float32"), *[normal(3, 3)] * 3)
        if e.primitive.name == "dot_general"
    ]
    assert len(products) == 3
    assert all(set(e.params["precision"]) == {jax.lax.Precision.HIGHEST} for e in products)


@pytest.mark.parametrize("dtype", ["float32", *NARROW])
def test_op_by_op_as_compiled(dtype):
    a, b, g = map(jnp.asarray, (normal(2, 3, 5), normal(5, 4), normal(2, 3, 4)))
    assert_near(product_and_gradients(a, b, g, dtype), run(a, b, g, dtype), 1e-7)


@pytest.mark.parametrize(
    ("a", "b"), [((3, 4), (5, 6)), ((2, 3, 4), (3, 4, 5)), ((3, 4), (2, 4, 5)), ((4,), (4,)), ((), (4, 4))]
)
def test_shapes_that_do_not_fit_are_both_named(a, b):
    with pytest.raises(ValueError, match="matmul wants") as error:
        matmul(jnp.zeros(a), jnp.zeros(b))
    assert str(a) in str(error.value) and str(b) in str(error.value) and "\n" not in str(error.value)
