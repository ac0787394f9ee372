"""Learning rates, against numbers computed by hand."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.model.samples import compiled
from training.schedules import SCHEDULES

RATES = {
    name: compiled(lambda updates, hyper, schedule=schedule: jax.vmap(lambda u: schedule(u, hyper))(updates))
    for name, schedule in SCHEDULES.items()
}


def rates(name, updates, *, peak_lr=1.0, warmup_steps=10, total_steps=110, final_lr_fraction=0.1):
    hyper = {"peak_lr": peak_lr, "warmup_steps": warmup_steps, "total_steps": total_steps}
    hyper = {k: np.float32(v) for k, v in (hyper | {"final_lr_fraction": final_lr_fraction}).items()}
    return RATES[name](np.int32(updates), hyper)


@pytest.mark.parametrize(("d_model", "warmup"), [(512, 4000), (1024, 8000)])
def test_noam_is_the_formula_of_the_paper(d_model, warmup):
    updates = [1, 2, 100, warmup - 1, warmup, warmup + 1, 4 * warmup, 1_000_000]
    wanted = [d_model**-0.5 * min(step**-0.5, step * warmup**-1.5) for step in updates]
    peak = (d_model * warmup) ** -0.5
    assert rates("noam", updates, peak_lr=peak, warmup_steps=warmup) == pytest.approx(wanted, rel=1e-6)
    assert max(wanted) == pytest.approx(peak, rel=1e-12)


def test_noam_by_hand():
    assert rates("noam", [1, 5, 10, 40, 90, 1000]) == pytest.approx([0.1, 0.5, 1.0, 0.5, 1 / 3, 0.1])


def test_cosine_by_hand():
    updates = [1, 5, 10, 35, 60, 85, 110, 1000]  # a quarter, a half, three quarters of the way down; the end; after it
    root = math.sqrt(0.5)
    wanted = [0.1, 0.5, 1.0, 0.1 + 0.45 * (1 + root), 0.55, 0.1 + 0.45 * (1 - root), 0.1, 0.1]
    assert rates("cosine", updates) == pytest.approx(wanted, rel=1e-6)


def test_linear_by_hand():
    wanted = [0.1, 0.5, 1.0, 0.775, 0.55, 0.325, 0.1, 0.1]
    assert rates("linear", [1, 5, 10, 35, 60, 85, 110, 1000]) == pytest.approx(wanted, rel=1e-6)


def test_constant_by_hand():
    assert rates("constant", [1, 5, 10, 11, 110, 1000]) == pytest.approx([0.1, 0.5, 1, 1, 1, 1])


@pytest.mark.parametrize("name", ["cosine", "linear"])
def test_the_last_update_of_a_run_has_the_final_rate(name):
    assert rates(name, [110], final_lr_fraction=0.0) == pytest.approx(0.0, abs=1e-7)
    assert rates(name, [110], peak_lr=3e-4, final_lr_fraction=0.25) == pytest.approx(0.75e-4)
    assert rates(name, [1, 55, 110], final_lr_fraction=1.0) == pytest.approx([0.1, 1, 1])


def test_no_warm_up_starts_at_the_peak():
    first = {name: rates(name, [1, 2], warmup_steps=0, final_lr_fraction=0.0) for name in SCHEDULES}
    assert first["constant"] == pytest.approx([1, 1])
    assert first["noam"] == pytest.approx([1, 0.5**0.5])
    assert first["linear"] == pytest.approx([109 / 110, 108 / 110])
    assert first["cosine"] == pytest.approx([(1 + math.cos(math.pi * k / 110)) / 2 for k in (1, 2)])


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_warm_up_as_long_as_the_run_ends_at_the_peak(name):
    assert rates(name, [1, 55, 110], warmup_steps=110) == pytest.approx([1 / 110, 0.5, 1])


@pytest.mark.parametrize("name", SCHEDULES)
def test_rates_and_warm_ups_may_be_traced(name):
    """Under `vmap` over both, each member has the rates it would have alone."""
    peaks, warmups, updates = np.float32([1e-3, 2.0, 0.5]), np.float32([0, 10, 400]), np.int32([1, 7, 10, 50, 110])

    def rate(update, peak, warmup):
        hyper = {"peak_lr": peak, "warmup_steps": warmup, "total_steps": 110.0, "final_lr_fraction": 0.1}
        return SCHEDULES[name](update, jax.tree.map(jnp.float32, hyper))

    members = jax.vmap(jax.vmap(rate, in_axes=(0, None, None)), in_axes=(None, 0, 0))
    together = compiled(members)(updates, peaks, warmups)
    for row, peak, warmup in zip(together, peaks, warmups, strict=True):
        assert row == pytest.approx(rates(name, updates, peak_lr=peak, warmup_steps=warmup), rel=1e-6)
