"""Checksums of arrays: against a loop in Python, for any sharding, and for every bit of every element."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.scripts import python
from training.checksum import checksums


def by_hand(x: np.ndarray) -> int:
    """The same sum, one integer after another."""
    words = np.ascontiguousarray(x).view({1: np.uint8, 2: np.uint16}.get(x.dtype.itemsize, np.uint32)).ravel()
    total = 0
    for place, bits in enumerate(map(int, words)):
        mixed = bits ^ (place * 0x9E3779B1 % 2**32)
        mixed = (mixed ^ (mixed >> 16)) * 0x85EBCA6B % 2**32
        mixed = (mixed ^ (mixed >> 13)) * 0xC2B2AE35 % 2**32
        total += mixed ^ (mixed >> 16)
    return total % 2**32


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int32", "uint32", "int8", "bool"])
@pytest.mark.parametrize("shape", [(), (7,), (3, 5), (2, 3, 4), (0, 3)])
def test_by_hand(dtype, shape):
    x = jnp.asarray(np.random.default_rng(0).standard_normal(shape) * 3).astype(dtype)
    assert checksums({"a": {"b": x}}) == {"a/b": by_hand(np.asarray(x))}


def test_typed_keys_count_by_their_data():
    key = jax.random.key(3)
    assert checksums([key]) == {"0": by_hand(np.asarray(jax.random.key_data(key)))}


def test_every_flipped_bit_and_every_swap_changes_it():
    x = np.random.default_rng(0).standard_normal(24).astype(np.float32)
    x[5] = 0.0
    words, seen = x.view(np.uint32), {by_hand(x)}
    for place in range(24):
        for bit in range(32):
            other = words.copy()
            other[place] ^= np.uint32(1 << bit)
            seen.add(checksums([other.view(np.float32)])["0"])
    for place in range(23):
        swapped = x.copy()
        swapped[[place, place + 1]] = x[[place + 1, place]]
        seen.add(checksums([swapped])["0"])
    assert len(seen) == 1 + 24 * 32 + 23
    signs = x.copy()
    signs[[2, 9]] *= -1  # two changes that a weighted sum would not see: 2^31 twice is 0
    assert checksums([signs])["0"] not in seen


SHARDED = """
    import jax, numpy as np
    from jax.sharding import NamedSharding, PartitionSpec as P
    from training.checksum import checksums
    x = np.random.default_rng(0).standard_normal((8, 12)).astype(np.float32)
    found = {checksums([x])["0"]}
    for shape in ((4, 1), (2, 2), (1, 4)):
        mesh = jax.make_mesh(shape, ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
        for spec in (P("a", "b"), P("b", "a"), P(None, ("a", "b")), P()):
            found.add(checksums([jax.device_put(x, NamedSharding(mesh, spec))])["0"])
    assert jax.device_count() == 4 and len(found) == 1, found
"""


def test_the_same_on_every_mesh():
    done = python(SHARDED, XLA_FLAGS="--xla_force_host_platform_device_count=4")
    assert done.returncode == 0, done.stderr
