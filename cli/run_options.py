"""From the words of a command line to a run and the options of a script that uses it."""

from __future__ import annotations

from typing import TypeVar

from cli.options import parse_options
from cli.terminal import fail

Options = TypeVar("Options")


def parse_run(program: str, doc: str, words: list[str], default: Options) -> tuple[str, Options]:
    """The run that `words` begin with, and `default` with the options that follow it.

    Exits with status 0 after a help text, 2 after one line about what was wrong.
    """
    if {"-h", "--help"} & set(words):
        words = ["RUN", "--help"]
    if not words or words[0].startswith("-"):
        fail(program, f"wanted a run's directory first, {program} runs/NAME; --help shows the options")
    run, options = words[0], words[1:]
    try:
        return run, parse_options(options, default, f"{program} {run}", doc)
    except ValueError as error:
        fail(program, error)
