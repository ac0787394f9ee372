"""Programs compiled ahead, one for each shape of batch."""

import jax
import jax.numpy as jnp
import pytest

from training.compilation import compile_step


def batch(width: int) -> dict:
    return {"inputs": {"source": jnp.ones((2, width), jnp.int32)}, "labels": jnp.ones((2, 3), jnp.int32)}


def test_each_shape_has_its_program_and_nothing_is_compiled_later():
    traced = []

    def step(state, batch):
        traced.append(batch["inputs"]["source"].shape)
        return state + batch["inputs"]["source"].sum(), {"width": batch["inputs"]["source"].shape[1]}

    run = compile_step(jax.jit(step, donate_argnums=0), jnp.int32(0), [batch(4), batch(7)])
    assert traced == [(2, 4), (2, 7)]
    state = jnp.int32(0)
    for width in (4, 7, 7, 4):
        state, _ = run(state, batch(width))
    assert int(state) == 2 * (4 + 7 + 7 + 4)
    assert len(traced) == 2


def test_another_shape_is_refused_by_name():
    run = compile_step(jax.jit(lambda state, batch: (state, {})), jnp.int32(0), [batch(4)])
    with pytest.raises(ValueError, match=r"inputs/source.*\(2, 5\)"):
        run(jnp.int32(0), batch(5))
