"""Metrics: means that do not depend on how the examples were split into batches."""

import dataclasses
import json
import math

import jax.numpy as jnp
import numpy as np
import pytest

from training.metrics import MetricAccumulator, perplexity


def test_means_are_sums_over_counts():
    totals = MetricAccumulator()  # 10 tokens of loss 2 and 100 tokens of loss 4: not the mean of the means, 3.0
    totals.add({"loss": (np.float32(20.0), np.int32(10)), "accuracy": (5, 10)})
    totals.add({"loss": (jnp.float32(400.0), jnp.int32(100)), "accuracy": (50, 100)})
    assert totals.means() == {"loss": pytest.approx(420 / 110, abs=1e-12), "accuracy": 0.5}
    assert totals.counts == {"loss": 110, "accuracy": 110}


def test_totals_are_kept_in_float64_and_integers():
    totals = MetricAccumulator()
    for _ in range(1000):
        totals.add({"loss": (np.float32(2.0**24), np.int32(2**30))})
        totals.add({"loss": (np.float32(1.0), np.int32(1))})
    assert totals.sums["loss"] == 1000 * 2**24 + 1000  # float32 would lose every 1.0
    assert totals.counts["loss"] == 1000 * 2**30 + 1000  # int32 would overflow


def test_nothing_counted_is_zero_and_seen_in_the_counts():
    totals = MetricAccumulator()
    totals.add({"loss": (0.0, 0)})
    assert totals.means() == {"loss": 0.0} and totals.counts == {"loss": 0}


def test_a_count_is_an_integer():
    with pytest.raises(TypeError):
        MetricAccumulator().add({"loss": (1.0, 0.5)})


def test_totals_go_through_json():
    totals = MetricAccumulator()
    totals.add({"loss": (0.1, 3)})
    again = MetricAccumulator(**json.loads(json.dumps(dataclasses.asdict(totals))))
    again.add({"loss": (0.2, 4)})
    totals.add({"loss": (0.2, 4)})
    assert again == totals


def test_perplexity():
    assert perplexity(math.log(50.0)) == pytest.approx(50.0)
    assert perplexity(1000.0) == math.inf
    assert math.isnan(perplexity(math.nan))
