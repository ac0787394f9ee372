"""Rounding of a config's numbers to float32, the type in which they reach the device."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from numbers import Real

SMALLEST_NORMAL = 2.0**-126


def float32(value: Real) -> float:
    """Round `value` to float32: ±∞ where it is too large, 0 where it is below 2**-126, which XLA takes for 0."""
    try:
        (rounded,) = struct.unpack("f", struct.pack("f", float(value)))
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    return 0.0 if abs(rounded) < SMALLEST_NORMAL else rounded


def complaint(value: object, holds: Callable[[Real], bool]) -> str | None:
    """Return None if `value` is a finite number of which `holds` is true, both as it is and in float32.

    Else what an error message says of it: "got 1e+39, which is inf in float32".
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        return f"got {value!r}"
    if abs(value) == math.inf or not holds(value):
        return f"got {value!r}"
    rounded = float32(value)
    if not math.isfinite(rounded) or not holds(rounded):
        return f"got {value!r}, which is {rounded} in float32"
    return None
