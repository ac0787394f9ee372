"""Sinusoidal, learned and no positions."""

import dataclasses

import jax
import numpy as np
import pytest

from model.components import default_components
from model.config import LanguageModelConfig
from model.positions import sinusoidal_positions
from tests.model import reference
from tests.model.samples import compiled, normal


@pytest.mark.parametrize("d_model", [1, 4, 7, 32])
def test_against_the_formula(d_model):
    """Every entry, odd widths included: their last column is a sine."""
    table = sinusoidal_positions(50, d_model)
    wanted = np.array([reference.sinusoid(t, d_model) for t in range(50)])
    assert table.dtype == np.float32 and table.shape == (50, d_model)
    assert np.abs(table - wanted).max() < 1e-7


def test_sine_and_cosine_are_interleaved():
    assert np.allclose(sinusoidal_positions(2, 4)[1], [0.841471, 0.540302, 0.0099998, 0.99995], atol=1e-6)
    assert np.array_equal(sinusoidal_positions(2, 4)[0], [0, 1, 0, 1])


def test_all_positions_differ():
    """In bfloat16 positions 256 and 257 would be one number; the table is float32 whatever the compute type."""
    table = sinusoidal_positions(2048, 32)
    wanted = np.array([reference.sinusoid(t, 32) for t in range(2048)])
    assert len(np.unique(table, axis=0)) == 2048
    assert np.abs(table - wanted).max() < 1e-7
    config = LanguageModelConfig(d_model=32, max_length=2048, dtype="bfloat16")
    rows = compiled(lambda ids: default_components(config).positions.apply({}, ids))(np.arange(2048)[None])
    assert np.array_equal(rows[0], table)


CONFIG = LanguageModelConfig(d_model=8, num_heads=2, max_length=4)


def positions_part(kind):
    return default_components(dataclasses.replace(CONFIG, positions=kind)).positions


def test_learned_positions_are_rows_of_a_table():
    part, table = positions_part("learned"), normal(4, 8)
    assert jax.eval_shape(part.init, jax.random.key(0))["table"].shape == (4, 8)
    assert np.array_equal(compiled(part.apply)({"table": table}, np.array([[3, 0]])), table[None, [3, 0]])


def test_no_positions_add_nothing():
    part = positions_part("none")
    assert part.init is None
    assert np.array_equal(compiled(part.apply)({}, np.array([[3, 0]])), np.zeros((1, 2, 8)))


@pytest.mark.parametrize("kind", ["sinusoidal", "learned"])
@pytest.mark.parametrize("bad", [4, -1])
def test_a_position_outside_the_table_is_nan(kind, bad):
    params = {"table": normal(4, 8)} if kind == "learned" else {}
    rows = compiled(positions_part(kind).apply)(params, np.array([[0, bad]]))
    assert np.isfinite(rows[0, 0]).all() and np.isnan(rows[0, 1]).all()
