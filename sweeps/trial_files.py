"""Files of a sweep: SWEEP/trials/0003/ is the run of trial 3, 0003.log what it printed, 0003.lock who trains it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from workdir.atomic_write import write_atomically
from workdir.lock import lock_file
from workdir.run_directory import RunDirectory


@dataclass(frozen=True)
class TrialFiles:
    """Paths of one trial."""

    directory: Path
    """Of the sweep."""
    number: int

    @property
    def name(self) -> str:
        """Path of the run, relative to the sweep's directory."""
        return f"trials/{self.number:04d}"

    @property
    def run(self) -> RunDirectory:
        """The directory of its run, as `train.py` makes it."""
        return RunDirectory(self.directory / self.name)

    @property
    def log(self) -> Path:
        """What its process printed, on stdout and stderr."""
        return self.directory / f"{self.name}.log"

    def last_line(self) -> str:
        """The last line of the log that says something, or ""."""
        if not self.log.exists():
            return ""
        lines = self.log.read_bytes()[-10_000:].decode(errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def try_to_lock(self) -> IO[bytes] | None:
        """Take the trial for this process and its children, until the last of them ends; None if another has it.

        The lock is of the open file (`flock`), so the kernel gives it back when its holders are killed.
        """
        path = self.directory / f"{self.name}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        return lock_file(path, wait=False)


def lock_directory(directory: Path) -> IO[bytes]:
    """Wait until no other process is changing the sweep, and keep others waiting until the file is closed."""
    directory.mkdir(parents=True, exist_ok=True)
    lock = lock_file(directory / "sweep.lock", wait=True)
    assert lock is not None
    return lock


def directory_identity(directory: Path) -> str:
    """A name for the sweep's directory that no other machine's directory has, unless they share it."""
    path = directory / "directory_id"
    write_atomically(path, uuid.uuid4().hex, overwrite=False)
    return path.read_text(encoding="utf-8")
