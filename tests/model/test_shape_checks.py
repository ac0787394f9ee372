"""The nets under all other tests: implicit rank promotion raises, and annotations are checked as the code runs."""

import jax
import jax.numpy as jnp
import jaxtyping
import pytest

from model.attention import scaled_dot_product_attention
from model.linear import linear
from model.masks import padding_mask
from model.normalization import layer_norm


def test_rank_promotion_raises():
    assert jax.config.jax_numpy_rank_promotion == "raise"
    with pytest.raises(ValueError, match="rank"):
        jnp.ones((2, 3)) + jnp.ones(3)


@pytest.mark.parametrize(
    "call",
    [
        lambda: layer_norm({"scale": jnp.ones(3)}, jnp.ones((2, 3), jnp.int32)),
        lambda: padding_mask(jnp.ones((2, 3))),
        lambda: padding_mask(jnp.ones(3, bool)),
        lambda: linear({"kernel": jnp.ones((3, 2))}, "x"),
        lambda: scaled_dot_product_attention(*[jnp.ones((2, 3, 4))] * 3),
        lambda: scaled_dot_product_attention(jnp.ones((1, 2, 3, 4)), jnp.ones((1, 2, 3, 5)), jnp.ones((1, 2, 3, 4))),
    ],
)
def test_annotations_are_checked(call):
    with pytest.raises(jaxtyping.TypeCheckError):
        call()
