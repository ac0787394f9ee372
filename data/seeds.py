"""Check of seeds."""

MOST_SEED = 2**32 - 1
"""What NumPy's RandomState takes; a JAX key would silently keep only the last 32 bits of a larger one."""


def check_seed(seed: object, name: str = "seed") -> None:
    """Raises ValueError, with `name`, unless `seed` is a whole number from 0 to 2**32 - 1."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MOST_SEED:
        raise ValueError(f"{name} must be a whole number from 0 to 2**32 - 1, got {seed!r}")
