"""Random arrays and parameters for the tests, and how results are compared."""

import functools
import itertools
import random

import jax
import jax.numpy as jnp
import numpy as np


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(dtype)


def token_ids(*shape, vocab_size, seed=0, low=1):
    return np.random.default_rng([seed, *shape]).integers(low, vocab_size, shape).astype(np.int32)


def put(x, where, value):
    """A copy of `x` with `value` at `where`."""
    x = np.array(x)
    x[where] = value
    return x


def compiled(function, *static, optimized=False):
    """`function` under jit, the arguments named in `static` being so, and its results as NumPy arrays.

    `optimized` compiles it as users do. Otherwise the machine code is left as it comes, in a third of the time. What a
    test does around it is NumPy: every JAX operation outside would be one more program to compile.
    """
    level = {
        "xla_backend_optimization_level": 3 if optimized else 0,
        "xla_llvm_disable_expensive_passes": not optimized,
    }
    jitted = jax.jit(function, static_argnames=static, compiler_options=level)
    return functools.wraps(function)(lambda *args, **kwargs: jax.device_get(jitted(*args, **kwargs)))


def parameters_like(shapes, seed=0, dtype=np.float32):
    """Random values for a tree of shapes: nothing left at the 0 or 1 it starts with, so that nothing goes unnoticed."""
    rng = np.random.default_rng(seed)

    def leaf(path, shape):
        name, values = path[-1].key, rng.normal(size=shape.shape)
        if name == "kernel":
            values *= shape.shape[-2] ** -0.5
        elif name == "table":
            values *= shape.shape[-1] ** -0.5
        else:
            values = (name == "scale") + 0.3 * values
        return values.astype(np.float32).astype(dtype)

    return jax.tree_util.tree_map_with_path(leaf, shapes)


@functools.cache
def parameters(model, *inputs, seed=0, dtype=np.float32):
    """`parameters_like` for a Flax model with token inputs of the given lengths; its initialisers are traced only."""
    tokens = [jax.ShapeDtypeStruct((1, length), jnp.int32) for length in inputs]
    shapes = jax.eval_shape(model.init, jax.random.key(0), *tokens)["params"]
    return parameters_like(shapes, seed, dtype)


def assert_same_bits(actual, wanted, what=""):
    """Every number of two trees equal; NaN is not equal to itself."""
    named = jax.tree_util.tree_leaves_with_path(actual)
    for (path, a), b in zip(named, jax.tree.leaves(wanted), strict=True):
        assert np.array_equal(a, b), f"{what} {jax.tree_util.keystr(path)} differs"


def assert_near(actual, wanted, tolerance):
    """Every leaf within `tolerance` of the wanted one, relative to the largest number in it (and to 1 at least)."""
    named = jax.tree_util.tree_leaves_with_path(actual)
    for (path, a), b in zip(named, jax.tree.leaves(wanted), strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        assert a.shape == b.shape, (jax.tree_util.keystr(path), a.shape, b.shape)
        scale = max(1.0, float(np.abs(b).max(initial=0)))
        assert np.allclose(a, b, rtol=0, atol=tolerance * scale), (
            f"{jax.tree_util.keystr(path)}: off by {np.abs(a - b).max():.3g}, scale {scale:.3g}"
        )


def assert_finite(tree):
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        assert np.isfinite(leaf).all(), f"{jax.tree_util.keystr(path)} is not finite"


def check_gradient(loss, params, *inputs):
    """d/ds loss(params + s · direction) at 0, by autodiff and by central differences, in random directions."""
    gradients, loss, step = compiled(jax.grad(loss))(params, *inputs), compiled(loss), 1e-5
    for seed in range(3):
        direction = jax.tree.map(lambda x, seed=seed: normal(*x.shape, seed=seed, dtype=np.float64), params)

        ahead, behind = (
            loss(jax.tree.map(lambda x, d, s=s: x + s * d, params, direction), *inputs) for s in (step, -step)
        )
        slope = (ahead - behind) / (2 * step)
        product = sum((g * d).sum() for g, d in zip(jax.tree.leaves(gradients), jax.tree.leaves(direction)))
        assert abs(slope - product) < 1e-6 * max(1, abs(slope))


def combinations(product=(), **options):
    """Rows of option values, few, in which every pair of values of two options occurs together at least once.

    The options named in `product` occur in every combination.
    """
    rng, rows = random.Random(0), []
    required = [dict(zip(product, values)) for values in itertools.product(*(options[name] for name in product))]
    missing = {
        frozenset({(a, x), (b, y)})
        for a, b in itertools.combinations(options, 2)
        for x in options[a]
        for y in options[b]
    }

    def new_pairs(row):
        return missing & {frozenset(pair) for pair in itertools.combinations(row.items(), 2)}

    while required or missing:
        start = required.pop() if required else {}
        candidates = ({name: start.get(name, rng.choice(options[name])) for name in options} for _ in range(200))
        rows.append(max(candidates, key=lambda row: len(new_pairs(row))))
        missing -= new_pairs(rows[-1])
    return rows


def named(row):
    """The test id of a row of options."""
    return "-".join(f"{name}={value}" for name, value in row.items())
