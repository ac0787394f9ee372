"""What a notebook runs on: the packages it lacks, the versions it has, and the devices that JAX has found."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

KEPT = re.compile(r"(jax|jaxlib|jax[-_].+|libtpu|nvidia[-_].+|numpy)$", re.IGNORECASE)
"""Packages that a runtime brings to fit its accelerator: an installation must not change them."""
SHOWN = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")


def install(root: Path) -> list[str]:
    """Install with pip what the checkout at `root` requires and this Python lacks; return it, as requirements.

    The installed JAX and the packages of its accelerator stay as they are. Nothing is done where nothing is lacking.

    Raises:
      ValueError: the installed JAX is one that this code does not work with.
      subprocess.CalledProcessError: pip failed; it has printed why.
    """
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    installed = {each.name: each.version for each in importlib.metadata.distributions()}
    lacking = missing_requirements(project["dependencies"], installed)
    for requirement in lacking:
        if "jax" in installed and re.match(r"jax\b(?![-_])", requirement):
            raise ValueError(f"this runtime has jax {installed['jax']}, wanted {requirement}: choose another runtime")
    if lacking:
        kept = [f"{name}=={version}\n" for name, version in installed.items() if KEPT.match(name)]
        with tempfile.TemporaryDirectory() as folder:
            constraints = Path(folder) / "constraints.txt"
            constraints.write_text("".join(kept), encoding="utf-8")
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--constraint", str(constraints), *lacking]
            subprocess.run(command, check=True)
    return lacking


def missing_requirements(requirements: list[str], installed: Mapping[str, str]) -> list[str]:
    """Return those of `requirements` that no package of `installed`, {name: version}, satisfies."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    versions = {canonicalize_name(name): version for name, version in installed.items() if name}

    def is_met(text: str) -> bool:
        requirement = Requirement(text)
        version = versions.get(canonicalize_name(requirement.name))
        return version is not None and requirement.specifier.contains(version, prereleases=True)

    return [text for text in requirements if not is_met(text)]


def check_env() -> list[str]:
    """Print versions, backend and devices, and a warning for each thing that is not as it should be; return those.

    Warnings: jax and jaxlib of different versions, and an accelerator that JAX does not use. Neither stops a run: on a
    CPU it is slow.
    """
    versions = {name: _version(name) for name in SHOWN}
    print(f"Python {platform.python_version()}, {', '.join(f'{name} {found}' for name, found in versions.items())}")
    warnings = []
    if versions["jax"] != versions["jaxlib"]:
        warnings.append(
            f"jax {versions['jax']} and jaxlib {versions['jaxlib']} differ: install both of one version, then restart"
        )
    try:
        import jax

        backend, devices = jax.default_backend(), jax.devices()
    except Exception as error:  # of any kind, from a mismatch of versions to a driver
        warnings.append(f"JAX does not start: {' '.join(str(error).split())[:200]}")
    else:
        kinds = [device.device_kind for device in devices]
        counts = ", ".join(f"{kinds.count(kind)} × {kind}" for kind in dict.fromkeys(kinds))
        print(f"backend {backend}: {counts}")
        found = accelerator(os.environ)
        if backend == "cpu" and found:
            why = os.environ.get("JAX_PLATFORMS")
            reason = f"JAX_PLATFORMS is {why}" if why else "JAX has no plugin for it, or it does not fit the driver"
            warnings.append(f"there is a {found}, but JAX uses the CPU: {reason}")
    for warning in warnings:
        print(f"warning: {warning}")
    return warnings


def accelerator(variables: Mapping[str, str], root: Path = Path("/")) -> str | None:
    """Return "GPU" or "TPU" if this machine seems to have one, whether or not JAX can use it."""
    tpu_names = {"TPU_NAME", "COLAB_TPU_ADDR", "TPU_ACCELERATOR_TYPE"}
    if tpu_names & set(variables) or (root / "dev/accel0").exists():
        return "TPU"
    return "GPU" if (root / "dev/nvidia0").exists() else None


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
