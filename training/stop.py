"""Preemption: on a signal a run finishes its step and saves a checkpoint, from which it resumes."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

SIGNALS = [signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]


class PreemptionGuard:
    """Within this context SIGTERM, SIGINT (Ctrl-C) and SIGHUP (a closed terminal) are noted instead of ending the
    process at once.

    A second signal of the kind does what it always did; but a SIGHUP nothing: a terminal that closes sends several.
    A signal that is ignored, as `nohup` has it for SIGHUP, stays ignored. Outside of the main thread, where Python
    cannot take signals (some notebooks), nothing is changed.
    """

    def __init__(self):
        self.signal: signal.Signals | None = None
        """The signal that came first, or None."""
        self._before: dict[signal.Signals, object] = {}

    @property
    def exit_code(self) -> int:
        """Return 128 + the signal's number, as shells have it: 143 for SIGTERM, 130 for Ctrl-C, 129 for SIGHUP."""
        return 128 + self.signal if self.signal else 0

    def __enter__(self) -> PreemptionGuard:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if signal.getsignal(number) != signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = self.signal or signal.Signals(number)
        if signal.Signals(number).name == "SIGHUP":
            _let_go_of_a_closed_terminal()
        else:
            signal.signal(number, self._before[number])


def _let_go_of_a_closed_terminal() -> None:
    """What is still said, while the run saves and ends, goes nowhere instead of failing."""
    for descriptor in (1, 2):
        try:
            os.write(descriptor, b"")
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, descriptor)
            os.close(null)
