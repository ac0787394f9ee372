"""Locks of directories and files, which the kernel gives back when their holder ends, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from workdir.run_directory import RunDirectoryError


@contextlib.contextmanager
def directory_lock(path: Path) -> Iterator[None]:
    """Keep other processes out of a run's directory, which has to exist. Nothing is written there.

    Where the file system has no locks for directories, as network drives may, nothing is locked.

    Raises:
        RunDirectoryError: another process has it.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunDirectoryError(
                f"{path} is being trained by another process: wait for it, or choose another --workdir"
            ) from error
        except OSError:
            pass
        yield
    finally:
        os.close(descriptor)


def lock_file(path: Path, *, wait: bool) -> IO[bytes] | None:
    """Lock a file, which is made, until what is returned is closed by this process and its children.

    Args:
        wait: until another process that has it gives it back; otherwise the answer is then None.
    """
    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        file.close()
        return None
    return file
