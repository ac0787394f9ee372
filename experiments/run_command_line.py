"""From the words of a command line to a run and the options of a script that uses it."""

from __future__ import annotations

import sys
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
    print(f"{program}: {message}", file=sys.stderr)
    sys.exit(code)
