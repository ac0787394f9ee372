"""Progress display of a run: one line with the step, the loss, the speed and the time left."""

import contextlib
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import rich.console
import rich.progress

PLAIN_INTERVAL = 10.0
"""Seconds between two lines where the output is no terminal (a pipe, a log file)."""


class Progress:
    """Progress of a run on stderr (results go to stdout): a bar in a terminal, a line that is rewritten
    in a notebook, and a plain line now and then anywhere else.

    It takes Python numbers only, so showing progress never waits for the device. The clock starts at the
    first `update`, by when the step has been compiled. `tokens_per_second` is the speed between the last two
    updates, time inside `paused` left out; the time left extrapolates everything since the first update.

        with Progress(total=steps, start=step) as progress:
            progress.update(step, loss=0.31, tokens=12800)

    Args:
        total: number of steps of the whole run.
        start: number of steps finished before this process.
    """

    def __init__(self, total: int, start: int = 0):
        self.tokens_per_second: float | None = None
        self._total, self._step = total, start
        self._first: tuple[int, float] | None = None  # step and time of the first update
        self._last = 0.0  # when the window since the last update began; `paused` moves it on
        self._printed = -PLAIN_INTERVAL
        self._line = f"step {start:,}/{total:,}  compiling"
        self._bar: rich.progress.Progress | None = None
        self._notebook: Any = None
        self._console = rich.console.Console(stderr=True)

    def __enter__(self) -> "Progress":
        if self._console.is_jupyter:
            from IPython.display import display

            self._notebook = display({"text/plain": self._line}, raw=True, display_id=True)
        elif self._console.is_terminal and not self._console.is_dumb_terminal:
            self._bar = rich.progress.Progress(
                rich.progress.BarColumn(bar_width=16),
                rich.progress.TextColumn("{task.description}", markup=False),
                console=self._console,
                redirect_stdout=sys.stdout.isatty(),  # results that are piped elsewhere stay on stdout
            )
            self._bar.add_task(self._line, total=self._total, completed=self._step)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, step: int, *, loss: float, tokens: int) -> None:
        """Show that `step` steps are finished.

        Args:
            step: number of finished steps.
            loss: loss since the last update, nats per token.
            tokens: tokens trained on since the last update, padding not counted.
        """
        now = time.monotonic()
        if self._first is None:
            self._first = (step, now)
        else:
            self.tokens_per_second = tokens / max(now - self._last, 1e-9)
        self._step, self._last = step, now
        self._line = f"step {step:,}/{self._total:,}  loss {loss:.4f}"
        if self.tokens_per_second is not None:
            first_step, first_time = self._first
            seconds = (now - first_time) / max(step - first_step, 1) * (self._total - step)
            self._line += f"  {self.tokens_per_second:,.0f} tokens/s  {timedelta(seconds=round(seconds))} left"
        self._show(now)

    @contextlib.contextmanager
    def paused(self, activity: str) -> Iterator[None]:
        """Show `activity` ("evaluating") instead of the speed, and leave its time out of the speed."""
        began, line = time.monotonic(), self._line
        if self._bar is not None or self._notebook is not None:
            self._line = f"step {self._step:,}/{self._total:,}  {activity}"
            self._show(began)
        try:
            yield
        finally:
            now, self._line = time.monotonic(), line
            self._last += now - began
            if self._bar is not None or self._notebook is not None:
                self._show(now)

    def _show(self, now: float) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self._step, description=self._line)
        elif self._notebook is not None:
            self._notebook.update({"text/plain": self._line}, raw=True)
        elif now - self._printed >= PLAIN_INTERVAL or self._step == self._total:
            print(self._line, file=sys.stderr, flush=True)
            self._printed = now
