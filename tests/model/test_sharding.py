"""On four devices, with the batch spread over them: the same numbers, and no device gathers what the others have."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.model import four_devices
from tests.model.samples import assert_near, assert_same_bits, compiled

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def on_four_devices(tmp_path_factory):
    path = tmp_path_factory.mktemp("four") / "results.npz"
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "PYTHONPATH": str(ROOT)}
    script = Path(four_devices.__file__)
    done = subprocess.run(
        [sys.executable, script, path], env=os.environ | flags, cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    with np.load(path) as results:
        return dict(results)


@pytest.mark.parametrize("case", four_devices.CASES)
def test_products(on_four_devices, case):
    """Forward and backward. bfloat16 is multiplied another way there (no pinned layout), with the same result."""
    w, dtype = four_devices.CASES[case]
    result = tuple(on_four_devices[f"{case} {i}"] for i in range(3))
    assert on_four_devices[f"gathers {case}"] == 0
    one_device = compiled(four_devices.product(w, dtype), optimized=True)
    assert_near(result, one_device(four_devices.X, w, four_devices.G), 1e-6)


def test_dropout_masks_are_the_same_bit_for_bit(on_four_devices):
    assert_same_bits(on_four_devices["mask 0"], compiled(four_devices.mask)(np.ones((8, 5, 7), np.float32)))


def test_a_model_with_dropout(on_four_devices):
    one_device = compiled(four_devices.logits)(four_devices.model_parameters(), four_devices.TOKENS)
    assert_near(on_four_devices["logits 0"], one_device, 1e-4)
    assert on_four_devices["gathers logits"] == 0
