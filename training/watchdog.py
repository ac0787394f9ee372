"""A watchdog: a run in which no step ends any more ends itself, so that whoever started it can start it again."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time

from training.retry import warn

EXIT_CODE = 75
"""EX_TEMPFAIL of sysexits.h: try again. A job that is queued again on it goes on from its last checkpoint."""


class Watchdog:
    """Within this context the process ends, with `EXIT_CODE`, when no step has ended for `minutes`.

    What waits for a peer that is gone, for a file system or for a device waits in a system call, where no exception
    would reach it: the process ends at once, after a line with the step's number and the stack of every thread.

    Args:
        minutes: longer than the longest evaluation, save and step together. 0: nothing is watched.
        name: of the run, for the line.
        step: the step that the run begins from.
    """

    def __init__(self, minutes: float, name: str, step: int):
        self._seconds, self._name = 60 * minutes, name
        self._beat = step, time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        if self._seconds:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def beat(self, step: int) -> None:
        """Note that the loop goes on after `step`."""
        self._beat = step, time.monotonic()

    def _watch(self) -> None:
        while not self._ended.wait(min(self._seconds / 4, 10.0)):
            step, then = self._beat
            if time.monotonic() - then > self._seconds:
                warn(
                    f"{self._name}: no step has ended for {self._seconds / 60:g} minutes, after step {step:,}: this "
                    f"process ends with exit code {EXIT_CODE}; the same command goes on from the last checkpoint"
                )
                if sys.stderr is not None:
                    faulthandler.dump_traceback(all_threads=True)
                os._exit(EXIT_CODE)
