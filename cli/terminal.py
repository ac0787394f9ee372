"""What a script says beside its results, and how it ends where something is wrong."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TextIO


def run_script(main: Callable[[], None], *, keep_going: bool = False) -> None:
    """Call `main`, with standard streams that take any text, whatever their encoding, and that are open.

    What the encoding of stdout or stderr lacks is written as an escape (`\\uac00`); what goes to a closed one is
    dropped. A reader of stdout that has seen enough (`| head`) ends the script with status 1 and nothing said.

    Args:
      keep_going: an output that fails while `main` runs (a closed pipe, a full disk) is dropped from there on, so that
        printing never costs a result that is written elsewhere.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
        if stream is None and keep_going:
            # Opened at once: the next file would get the number of the closed stream, and its prints.
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif stream is not None and keep_going:
            setattr(sys, name, _DroppingStream(stream))
    try:
        try:
            main()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        _flush()
        sys.exit(1)


class _DroppingStream:
    """A text stream that drops what it can no longer write, instead of raising OSError."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._attempt(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        self._attempt(self._stream.flush)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _attempt(self, action: Callable[..., object], *arguments: object) -> None:
        try:
            action(*arguments)
        except OSError:
            _discard(self._stream)


def fail(program: str, message: object, code: int = 2) -> NoReturn:
    """One line on stderr, and the end: 2 for what was asked wrongly, 1 for what failed."""
    log(f"{program}: {message}")
    sys.exit(code)


def log(message: object) -> None:
    """On stderr, since stdout is for results."""
    if sys.stderr is not None:  # closed: then print would take stdout
        print(message, file=sys.stderr, flush=True)


@contextlib.contextmanager
def exit_on_error(program: str) -> Iterator[None]:
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
        fail(program, error, 1)


def _flush() -> None:
    """Whatever stdout still takes; else the interpreter would try once more at its end, and complain."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        _discard(sys.stdout)


def _discard(stream: TextIO) -> None:
    """Let what `stream` still holds, and gets from now on, go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
