"""What a notebook is told about the machine it runs on."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from cli.environment import accelerator, check_env, install, missing_requirements


def test_versions_and_devices_are_printed(capsys, monkeypatch):
    monkeypatch.setattr("cli.environment.accelerator", lambda variables: None)
    assert check_env() == []
    out = capsys.readouterr().out
    assert f"jax {jax.__version__}, jaxlib {jax.__version__}" in out
    assert f"backend cpu: {jax.device_count()} × cpu" in out and "warning" not in out


def test_an_accelerator_that_is_not_used_is_a_warning(capsys, monkeypatch):
    monkeypatch.setattr("cli.environment.accelerator", lambda variables: "GPU")
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    assert len(check_env()) == 1
    assert "warning: there is a GPU, but JAX uses the CPU: JAX has no plugin for it" in capsys.readouterr().out
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert check_env() == ["there is a GPU, but JAX uses the CPU: JAX_PLATFORMS is cpu"]


def test_jax_and_jaxlib_of_different_versions_are_a_warning(capsys, monkeypatch):
    found = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.1.2" if name == "jaxlib" else found(name))
    monkeypatch.setattr("cli.environment.accelerator", lambda variables: None)
    (warning,) = check_env()
    assert f"jax {jax.__version__} and jaxlib 0.1.2 differ" in warning


def test_accelerators_are_found(tmp_path):
    assert accelerator({"COLAB_TPU_ADDR": "grpc://10.0.0.2"}, tmp_path) == "TPU"
    assert accelerator({}, tmp_path) is None
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").touch()
    assert accelerator({}, tmp_path) == "GPU"


def test_missing_requirements_by_hand():
    wanted = [
        "jax>=0.10,<0.13",
        "orbax-checkpoint>=0.12,<1.0",
        "tensorboardX>=2.6.4",
        "importlib_resources>=6.0",
        "nil",
    ]
    has = {"jax": "0.12.0rc1", "orbax_checkpoint": "0.11.9", "tensorboardx": "2.6.5", "importlib-resources": "6.5"}
    assert missing_requirements(wanted, has) == ["orbax-checkpoint>=0.12,<1.0", "nil"]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A checkout that wants some packages; the commands of pip, which is not run, and their constraints."""
    calls = []

    def run(command, check):
        assert check and command[:4] == [sys.executable, "-m", "pip", "install"]
        calls.append((command[-1], Path(command[command.index("--constraint") + 1]).read_text()))

    monkeypatch.setattr(subprocess, "run", run)

    def write(*requirements):
        (tmp_path / "pyproject.toml").write_text(f"[project]\ndependencies = {list(requirements)}\n")
        return tmp_path

    return write, calls


def test_what_is_lacking_is_installed_and_jax_stays(project):
    write, calls = project
    assert install(write("jax>=0.10", "numpy>=1")) == [] and calls == []
    assert install(write("jax>=0.10", "no_such_package>=3")) == ["no_such_package>=3"]
    ((last, constraints),) = calls
    assert last == "no_such_package>=3"
    assert f"jax=={jax.__version__}\n" in constraints and f"jaxlib=={jax.__version__}\n" in constraints
    assert "flax" not in constraints and "jaxtyping" not in constraints


def test_a_jax_that_does_not_fit_is_not_replaced(project):
    write, calls = project
    with pytest.raises(ValueError, match=rf"this runtime has jax {jax.__version__}, wanted jax>=99"):
        install(write("jax>=99"))
    assert calls == []
