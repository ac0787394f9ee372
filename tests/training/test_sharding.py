"""Devices: one here, four in a process of its own, since their number is fixed when JAX starts."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import pytest

from tests.training.two_processes import losses
from training.sharding import batch_sharding, check_batch_divisible, data_mesh, device_put, replicated

ROOT = Path(__file__).resolve().parents[2]
QUICK = "--xla_backend_optimization_level=0"
"""As in `conftest.py`."""


def test_one_device_takes_any_number_of_rows():
    mesh = data_mesh()
    for rows in (1, 7, 128):
        check_batch_divisible(rows, "data.batch_size", mesh)
    assert device_put(jnp.ones((7, 2)), batch_sharding(mesh)).is_fully_replicated
    assert device_put({"a": 1.0}, replicated(mesh))["a"].sharding == replicated(mesh)


@pytest.mark.slow
def test_with_four_devices():
    """All of `four_devices.py`."""
    program = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--durations=5"]
    flags = ["--xla_force_host_platform_device_count=4", QUICK]
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


@pytest.mark.slow
def test_two_processes_learn_the_same_from_half_of_each_batch(tmp_path):
    """Real processes with a device each: what they put together is the batch, and the losses are one process's."""
    wanted = losses(str(tmp_path))
    with socket.create_server(("localhost", 0)) as free:
        address = f"localhost:{free.getsockname()[1]}"
    program = [sys.executable, "-m", "tests.training.two_processes", address]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": QUICK}
    options = {"cwd": ROOT, "env": environment, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen([*program, str(process), str(tmp_path)], **options) for process in range(2)]
    try:
        for process in processes:
            out, _ = process.communicate(timeout=240)
            assert process.returncode == 0
            assert json.loads(out.splitlines()[-1]) == pytest.approx(wanted, rel=1e-5)
    finally:
        for process in processes:
            process.kill()
