"""Masks are boolean, True = may attend, of rank 4, and queries and keys align at the end."""

import jax.numpy as jnp
import numpy as np
import pytest

from model.masks import causal_mask, check_mask, combine_masks, padding_mask, segment_mask


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (4, 4), (2, 6), (1, 6), (4, 2)])
def test_causal_mask_against_its_definition(queries, keys):
    mask = causal_mask(queries, keys)
    assert mask.shape == (1, 1, queries, keys) and mask.dtype == bool
    for i in range(queries):
        for j in range(keys):
            assert mask[0, 0, i, j] == (j <= i + keys - queries)


def test_queries_and_keys_align_at_the_end():
    assert causal_mask(1, 6).sum() == 6
    assert causal_mask(2, 6)[0, 0].sum(axis=-1).tolist() == [5, 6]
    assert np.array_equal(causal_mask(5), causal_mask(5, 5))
    assert np.array_equal(causal_mask(2, 6), causal_mask(6)[:, :, -2:])


def test_padding_and_segments():
    valid = jnp.array([[True, True, False], [False, True, True]])
    assert np.array_equal(padding_mask(valid), valid[:, None, None, :])
    segments, of_keys = jnp.array([[1, 1, 2]]), jnp.array([[2, 1]])
    assert segment_mask(segments, of_keys).tolist() == [[[[False, True], [False, True], [True, False]]]]


def test_masks_combine_by_and():
    causal, padding = causal_mask(3), padding_mask(jnp.array([[True, False, True], [True, True, True]]))
    both = combine_masks(causal, None, padding)
    assert both.shape == (2, 1, 3, 3) and both.dtype == bool
    assert np.array_equal(both, np.asarray(causal) & np.asarray(padding))
    assert combine_masks(None, None) is None and combine_masks() is None
    assert np.array_equal(combine_masks(causal), causal)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.int32])
def test_other_types_than_bool_are_refused(without_shape_checks, dtype):
    for refuse in (check_mask, combine_masks):
        with pytest.raises(TypeError, match=f"must be boolean, True = may attend; got {jnp.dtype(dtype)}"):
            refuse(jnp.ones((1, 1, 2, 2), dtype))


@pytest.mark.parametrize("shape", [(5, 4), (2, 4, 5), (2, 3, 4, 4), (3, 3, 4, 5), (1, 2, 1, 5), (1, 1, 1, 4, 5)])
def test_other_shapes_are_refused_and_both_named(shape):
    scores = (2, 3, 4, 5)
    with pytest.raises(ValueError, match="a mask must have shape") as error:
        check_mask(jnp.ones(shape, bool), scores)
    assert str(shape) in str(error.value) and str(scores) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 1, 1, 5), (1, 3, 4, 1), (2, 3, 4, 5)])
def test_every_axis_may_be_full_or_one(shape):
    mask = jnp.ones(shape, bool)
    assert check_mask(mask, (2, 3, 4, 5)) is mask


def test_masks_that_do_not_fit_each_other_are_named():
    with pytest.raises(ValueError, match="do not fit together") as error:
        combine_masks(causal_mask(3), causal_mask(4))
    assert "(1, 1, 3, 3)" in str(error.value) and "(1, 1, 4, 4)" in str(error.value)
    with pytest.raises(ValueError, match=r"\(B, H, T, S\).*\(5, 4\)"):
        combine_masks(jnp.ones((5, 4), bool))
