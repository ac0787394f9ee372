"""The Optax chain: what decays and what does not, in which order, and in which types."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from model.config import TransformerConfig
from model.transformer import Transformer
from tests.model.samples import assert_near, compiled, parameters, parameters_like
from tests.training.samples import small_language_model, small_parameters
from training.optimizer import adamw

ADAM = {"b1": 0.9, "b2": 0.98, "epsilon": 1e-9}


def hyper_with(**more):
    return {name: jnp.float32(value) for name, value in (ADAM | more).items()}


def layered(**changes):
    """A Transformer with every kind of parameter there is."""
    options = {"d_model": 8, "num_heads": 2, "d_ff": 16, "num_encoder_layers": 2, "num_decoder_layers": 3}
    options |= {"max_length": 8, "biases": "all", "positions": "learned", "embeddings": "separate"}
    return Transformer(TransformerConfig(**(options | changes)), 11, 13)


@compiled
def one_step(params, grads, learning_rate, hyper):
    chain = adamw(hyper, learning_rate)
    updates, state = chain.update(grads, chain.init(params), params)
    return optax.apply_updates(params, updates), state


@pytest.mark.parametrize("scan_layers", [False, True])
def test_decay_shrinks_the_kernels_and_nothing_else(scan_layers):
    """Also in the stacked tree, where a bias has the rank of a matrix."""
    params = jax.tree.map(np.ones_like, parameters(layered(scan_layers=scan_layers), 5, 5))
    zeros = jax.tree.map(np.zeros_like, params)
    after, _ = one_step(params, zeros, 0.1, hyper_with(weight_decay=0.1))
    seen = set()
    for path, leaf in jax.tree_util.tree_leaves_with_path(after):
        name, where = path[-1].key, jax.tree_util.keystr(path)
        assert leaf == pytest.approx(0.99 if name == "kernel" else 1.0, abs=1e-7), where
        seen.add((name, leaf.ndim))
    assert seen == {("kernel", 2), ("kernel", 3), ("bias", 1), ("bias", 2), ("scale", 1), ("scale", 2), ("table", 2)}


def test_without_decay_nothing_shrinks():
    params = jax.tree.map(np.ones_like, parameters(layered(), 5, 5))
    after, _ = one_step(params, jax.tree.map(np.zeros_like, params), 0.1, hyper_with())
    assert_near(after, params, 0)


@pytest.mark.parametrize("clip", [None, 0.5])
def test_five_steps_equal_those_of_optax(clip):
    params = small_parameters(small_language_model(biases="all", positions="learned", embeddings="separate"))
    mask = jax.tree_util.tree_map_with_path(lambda path, _: "kernel" in jax.tree_util.keystr(path), params)
    theirs = optax.adamw(0.01, b1=0.9, b2=0.98, eps=1e-9, weight_decay=0.1, mask=mask)
    theirs = theirs if clip is None else optax.chain(optax.clip_by_global_norm(clip), theirs)
    hyper = hyper_with(weight_decay=0.1, **({} if clip is None else {"clip_norm": clip}))

    @compiled
    def one(params, state, grads, hyper):
        chain = theirs if hyper is None else adamw(hyper, jnp.float32(0.01))
        updates, state = chain.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    def five_steps(state, hyper):
        after = params
        for seed in range(1, 6):
            after, state = one(after, state, parameters_like(params, seed), hyper)
        return after

    ours = five_steps(adamw(hyper, jnp.float32(0)).init(params), hyper)
    assert_near(ours, five_steps(theirs.init(params), None), 1e-6)
    assert max(np.abs(a - b).max() for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(params))) > 0.01


def test_the_gradient_is_clipped_by_its_global_norm_before_adam_sees_it():
    params = {"a": {"kernel": np.zeros((1, 1), np.float32)}, "b": {"bias": np.zeros(1, np.float32)}}
    grads = {"a": {"kernel": np.full((1, 1), 30, np.float32)}, "b": {"bias": np.full(1, 40, np.float32)}}  # norm 50
    for clip, scale in [(1.0, 1 / 50), (5.0, 1 / 10), (100.0, 1.0)]:
        _, state = one_step(params, grads, 0.1, hyper_with(clip_norm=clip))
        mean = optax.tree_utils.tree_get(state, "mu")
        assert_near(mean, jax.tree.map(lambda g, scale=scale: np.float32(0.1 * scale) * g, grads), 1e-6)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("scalar", [float, np.float32, np.float64, jnp.float32], ids=["float", "np32", "np64", "jnp"])
def test_parameters_keep_their_type(dtype, scalar):
    """Whatever kind of number the hyperparameters and the learning rate are."""
    hyper = {name: scalar(value) for name, value in (ADAM | {"weight_decay": 0.1}).items()}
    if dtype == jnp.float32:  # parameters are; optax's clipping takes no gradients of another type than the norm's
        hyper["clip_norm"] = scalar(1.0)
    params = {"kernel": jnp.ones((2, 2), dtype), "bias": jnp.ones(2, dtype)}

    @jax.jit
    def update(params, state):
        chain = adamw(hyper, scalar(0.1))
        state = chain.init(params) if state is None else state
        updates, state = chain.update(jax.tree.map(jnp.ones_like, params), state, params)
        return optax.apply_updates(params, updates), state

    after, state = params, None
    for _ in range(3):
        after, state = update(after, state)
    assert jax.tree.map(lambda x: x.dtype, after) == {"kernel": dtype, "bias": dtype}
    assert np.float64(after["bias"]) == pytest.approx(0.7, abs=0.02)
