"""Devices: one here, four in a process of its own, since their number is fixed when JAX starts."""

import os
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp

from training.devices import by_row, check_rows, data_mesh, everywhere, put

ROOT = Path(__file__).resolve().parents[2]


def test_one_device_takes_any_number_of_rows():
    mesh = data_mesh()
    for rows in (1, 7, 128):
        check_rows(rows, "data.batch_size", mesh)
    assert put(jnp.ones((7, 2)), by_row(mesh)).is_fully_replicated
    assert put({"a": 1.0}, everywhere(mesh))["a"].sharding == everywhere(mesh)


def test_with_four_devices():
    """All of `four_devices.py`."""
    program = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--durations=5"]
    flags = ["--xla_force_host_platform_device_count=4", "--xla_backend_optimization_level=0"]  # compiles in a third
    done = subprocess.run(
        [*program, "tests/training/four_devices.py"],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": " ".join(flags)},
        capture_output=True,
        text=True,
        timeout=900,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
