"""What all tests share: JAX on the CPU, one compilation cache, no rank promotion, annotations checked at run time.

Programs are compiled without LLVM's optimizations, in a third of the time. Compiled as users do, XLA_FLAGS= (empty),
are the slow tests and the core subset of `.ci/run`.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
os.environ.setdefault("JAX_NUMPY_RANK_PROMOTION", "raise")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TFDS_DATA_DIR", str(ROOT / ".cache" / "tfds"))
sys.path.insert(0, str(ROOT))

import hypothesis  # noqa: E402
import jaxtyping  # noqa: E402
import pytest  # noqa: E402

# How long an example takes says more about the machine than about the code.
hypothesis.settings.register_profile("qkv", deadline=None)
hypothesis.settings.load_profile("qkv")

_hook = jaxtyping.install_import_hook(["model", "decoding"], "beartype.beartype")


def pytest_collection_modifyitems(items):
    """Tests of the runs below go to one worker (`--dist loadgroup`): each worker would train them for itself."""
    for item in items:
        if {"spelling_run", "text_run"} & set(item.fixturenames):
            item.add_marker(pytest.mark.xdist_group("runs"))


@pytest.fixture
def without_shape_checks(monkeypatch):
    """For tests of our own error messages: the annotations' run-time check would answer first."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session")
def spelling_run(tmp_path_factory):
    """A finished encoder–decoder run: its directory, to be read only."""
    from tests.small_runs import train_spelling

    return train_spelling(tmp_path_factory.mktemp("spelling"))


@pytest.fixture(scope="session")
def text_run(tmp_path_factory):
    """A finished run of a language model: its directory, to be read only."""
    from tests.small_runs import train_text

    return train_text(tmp_path_factory.mktemp("text"))
