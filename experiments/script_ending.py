"""What a script says beside its results, and how it ends where something is wrong."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import NoReturn


def complain(program: str, message: object, code: int = 2) -> NoReturn:
    """One line on stderr, and the end: 2 for what was asked wrongly, 1 for what failed."""
    say(f"{program}: {message}")
    sys.exit(code)


def say(message: object) -> None:
    """On stderr, since stdout is for results."""
    if sys.stderr is not None:  # closed: then print would take stdout
        print(message, file=sys.stderr, flush=True)


@contextlib.contextmanager
def ending(program: str) -> Iterator[None]:
    """What fails in here ends the script with status 1 and one line, Ctrl-C with 130.

    A reader of stdout that has seen enough (`| head`) ends it with 1 and nothing said.
    """
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _flush()
        sys.exit(1)
    except KeyboardInterrupt:
        _flush()
        sys.exit(130)
    except (ValueError, OSError) as error:
        _flush()
        complain(program, error, 1)


def _flush() -> None:
    """Whatever stdout still takes; else the interpreter would try once more at its end, and complain."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
