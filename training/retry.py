"""Writes that fail are tried again: a network drive, such as Google Drive in Colab, drops and comes back."""

import sys
import time
from collections.abc import Callable

RETRY_SECONDS = (1.0, 5.0, 25.0)
"""Waits before a write that failed is tried again."""


def with_retries(write: Callable[[], None], what: str) -> None:
    """Call `write`, and again after each of `RETRY_SECONDS` while it raises OSError, with a line on stderr.

    Args:
        what: "PATH could not be written", for the line.

    Raises:
        OSError: of the last try.
    """
    for seconds in RETRY_SECONDS:
        try:
            return write()
        except OSError as error:
            warn(f"{what}, again in {seconds:g} s: {error}")
        time.sleep(seconds)
    write()


def warn(text: str) -> None:
    """Print a line on stderr, where there is one."""
    if sys.stderr is not None:
        print(text, file=sys.stderr, flush=True)
