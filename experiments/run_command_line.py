"""From the words of a command line to a run and the options of a script that uses it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from data.options import check_options

Options = TypeVar("Options")


def parse_run(program: str, doc: str, words: list[str], default: Options) -> tuple[str, Options]:
    """The run that `words` begin with, and `default` with the options that follow it.

    Exits with status 0 after a help text, 2 after one line about what was wrong.
    """
    asked = [word for word in words if word in ("-h", "--help")]
    if asked:
        words = ["RUN", "--help"]
    if not words or words[0].startswith("-"):
        complain(program, f"wanted a run's directory first, {program} runs/NAME; --help shows the options")
    import tyro

    kind = type(default)

    @dataclass(frozen=True)
    class Unchecked(kind):
        """Without the checks of its values: tyro would put a frame around what they say."""

        def __post_init__(self) -> None:
            pass

    run, options = words[0], words[1:]
    try:
        options = check_options(options, default)
        parsed = tyro.cli(
            Unchecked,
            prog=f"{program} {run}",
            description=doc,
            default=Unchecked(**vars(default)),
            args=options,
            use_underscores=True,
        )
        return run, kind(**vars(parsed))
    except ValueError as error:
        complain(program, str(error))


def complain(program: str, message: object, code: int = 2) -> NoReturn:
    """One line on stderr, and the end: 2 for what was asked wrongly, 1 for what failed."""
    print(f"{program}: {message}", file=sys.stderr)
    sys.exit(code)
