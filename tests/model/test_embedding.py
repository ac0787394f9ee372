"""Embedding rows, their scale, and ids that do not exist."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from model.embedding import embed, embedding_lookup, unembed
from tests.model.samples import assert_near, compiled, normal


def test_rows_are_scaled_by_the_root_of_the_width():
    table = normal(5, 9)
    ids = np.array([[4, 0, 4], [1, 2, 3]], np.int32)
    assert_near(compiled(embed)(table, ids), 3.0 * table[ids], 1e-7)


def test_the_scale_is_not_rounded():
    """√3072 = 55.4256; bfloat16 would make it 55.5."""
    row = compiled(embed)(np.ones((1, 3072), np.float32), np.zeros((1, 1), np.int32))
    assert np.all(row == np.float32(np.sqrt(3072)))


@pytest.mark.parametrize("bad", [4, 5, 2**31 - 1, -1, -4, -(2**31)])
def test_an_id_outside_the_table_is_nan_and_never_a_neighbour(bad):
    table, ids = normal(4, 3), np.array([[3, bad, 0]], np.int32)

    @compiled
    def rows_and_gradient(table, ids):
        return embedding_lookup(table, ids), jax.grad(lambda table: jnp.nansum(embedding_lookup(table, ids)))(table)

    rows, gradient = rows_and_gradient(table, ids)
    assert np.isnan(rows[0, 1]).all()
    assert np.array_equal(rows[0, [0, 2]], table[[3, 0]])
    assert np.array_equal(gradient, [[1] * 3, [0] * 3, [0] * 3, [1] * 3])


def test_logits_are_inner_products_with_the_rows():
    table, x = normal(5, 4), normal(2, 3, 4)
    assert_near(compiled(unembed)(table, x), np.einsum("btd,vd->btv", x.astype(np.float64), table), 1e-6)
