"""The curves of a run for TensorBoard: event files in `workdir/tensorboard`."""

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path


class TensorBoardTracker:
    """Writes event files. Unlike tensorboardX's `SummaryWriter` it writes at once and not from a thread, whose failure
    on a full disk or a lost drive would leave the run waiting for it forever.

    Args:
        folder: of the event files; it is made.
        start: the step the run starts from: TensorBoard forgets what was written of later ones.
    """

    name = "TensorBoard"

    def __init__(self, folder: Path, start: int):
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._step, self._files = folder, start, 0
        self._open()

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Write one event, in a new file if the one that is open fails. Raises OSError if that fails too."""
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        scalars = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        event = Event(step=step, wall_time=time.time(), summary=Summary(value=scalars))
        try:
            self._write(event)
        except OSError:
            self.close()
            self._open()
            self._write(event)
        self._step = step

    def close(self, exit_code: int = 0) -> None:
        """Close the file; what fails then has been written before."""
        with contextlib.suppress(OSError):
            self._events.close()

    def _open(self) -> None:
        from tensorboardX.event_file_writer import EventsWriter  # here, so that reading metrics needs no TensorBoard
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        self._files += 1
        self._events = EventsWriter(str(self._folder / "events"), f".{os.getpid()}.{self._files}")
        self._write(Event(step=self._step + 1, session_log=SessionLog(status=SessionLog.START)))

    def _write(self, event) -> None:
        self._events.write_event(event)
        self._events.flush()
