"""From the words of a command line to a run and the options of a script that uses it; and how such a script ends."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import NoReturn, TypeVar

from data.options import parse_options

Options = TypeVar("Options")


def parse_run(program: str, doc: str, words: list[str], default: Options) -> tuple[str, Options]:
    """The run that `words` begin with, and `default` with the options that follow it.

    Exits with status 0 after a help text, 2 after one line about what was wrong.
    """
    if {"-h", "--help"} & set(words):
        words = ["RUN", "--help"]
    if not words or words[0].startswith("-"):
        complain(program, f"wanted a run's directory first, {program} runs/NAME; --help shows the options")
    run, options = words[0], words[1:]
    try:
        return run, parse_options(options, default, f"{program} {run}", doc)
    except ValueError as error:
        complain(program, error)


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
