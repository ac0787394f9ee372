"""What the tests of the model share."""

import jax
import pytest

jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)  # many small programs: keep them all


@pytest.fixture
def x64():
    """JAX in double precision, for comparison with NumPy and for finite differences."""
    with jax.enable_x64(True):
        yield
