"""Messages of scripts on stderr, and their exit codes."""

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
    """Print one line on stderr and exit: code 2 for a wrong request, 1 for a failure."""
    log(f"{program}: {message}")
    sys.exit(code)


def log(message: object) -> None:
    """Print `message` on stderr: stdout is for results."""
    if sys.stderr is not None:  # closed: then print would take stdout
        print(message, file=sys.stderr, flush=True)


@contextlib.contextmanager
def exit_on_error(program: str) -> Iterator[None]:
    """Exit with status 1 and one line on ValueError and OSError, with 130 on Ctrl-C.

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
    """Flush stdout as far as it takes anything; else the interpreter would try again at its exit, and complain."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        _discard(sys.stdout)


def _discard(stream: TextIO) -> None:
    """Redirect `stream`, with what it still holds, to the null device."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
