"""Writing checkpoints in the background, one after another, and again where a write fails."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
from orbax.checkpoint import v1 as ocp

from training import retry
from training.retry import warn


class Save(NamedTuple):
    """What is written as one checkpoint."""

    step: int
    state: Any
    data: dict[str, Any]
    metrics: dict[str, float] | None

    def is_donated(self) -> bool:
        """Return whether a train step has taken the state's buffers since, so that it cannot be written again."""
        return any(leaf.is_deleted() for leaf in jax.tree.leaves(self.state) if isinstance(leaf, jax.Array))


class CheckpointWriter:
    """Writes with Orbax's `Checkpointer`, which it opens with the first save and, after one that failed, anew.

    A save that fails is tried again after each of `training.retry.RETRY_SECONDS`, with a line on stderr. One that
    failed in the background, and whose state has been donated since, is lost: the line says so, and the next takes its
    place. With several processes, which would have to agree on what has failed, none is tried again.

    Args:
        directory: of the checkpoints, for messages.
        open_checkpointer: makes the `Checkpointer`; may raise OSError.
    """

    def __init__(self, directory: Path, open_checkpointer: Callable[[], ocp.training.Checkpointer]):
        self._directory, self._open = directory, open_checkpointer
        self._checkpointer: ocp.training.Checkpointer | None = None
        self._pending: Save | None = None
        self._lost: OSError | None = None

    @property
    def is_open(self) -> bool:
        """Whether there was a save since the last failure, so that `steps` are known."""
        return self._checkpointer is not None

    @property
    def steps(self) -> list[int]:
        """The saved steps, the newest last."""
        return [saved.step for saved in self._checkpointer.checkpoints]

    def save(self, step: int, state: Any, data: dict[str, Any], metrics: dict[str, float] | None) -> None:
        """Wait for the save before this one, then start to write this one, unless its step is already saved.

        Raises:
            OSError: a save could not be written, again and again, or two in a row are lost.
        """
        self.wait()
        save = Save(step, state, data, metrics)
        try:
            self._start(save)
        except OSError as error:
            self._retry(save, error)

    def wait(self) -> None:
        """Wait for the save that is being written, and try it again if it fails. Raises OSError as `save` does."""
        if self._checkpointer is None:
            return
        save, self._pending = self._pending, None
        try:
            self._checkpointer.wait()
        except (OSError, ValueError) as error:
            if save is None:
                raise self._failure(error) from error
            self._retry(save, error)
        else:
            if save is not None:
                self._lost = None

    def close(self) -> None:
        """Wait for the last save and close Orbax's managers. Raises OSError if it could not be written, or is lost."""
        self.wait()
        if self._checkpointer is not None:
            self._checkpointer.close()
        lost, self._lost = self._lost, None
        if lost is not None:
            raise lost

    def _start(self, save: Save) -> None:
        if self._checkpointer is None:
            self._checkpointer = self._open()
        if save.step not in self.steps:
            self._pending = save
            # `force`: whether to save is the loop's decision, not that of Orbax's save policy.
            self._checkpointer.save_checkpointables_async(
                save.step, {"state": save.state, "data": save.data}, force=True, metrics=save.metrics
            )

    def _retry(self, save: Save, error: Exception) -> None:
        """Write a save that failed in the foreground, or give it up if its state is gone."""
        for seconds in retry.RETRY_SECONDS if jax.process_count() == 1 else ():
            self._discard()
            failed = f"checkpoint {save.step} could not be written to {self._directory}"
            if save.is_donated():
                if self._lost is not None:
                    break
                self._lost = self._failure(error)
                warn(f"{failed}, the next will be: {error}")
                return
            warn(f"{failed}, again in {seconds:g} s: {error}")
            time.sleep(seconds)
            try:
                self._start(save)
                self._checkpointer.wait()
            except (OSError, ValueError) as another:
                error = another
            else:
                self._pending = self._lost = None
                return
        self._discard()
        self._lost = None
        raise self._failure(error) from error

    def _discard(self) -> None:
        """Close Orbax's managers, of which a save has failed: what they raise has been said."""
        if self._checkpointer is not None:
            with contextlib.suppress(OSError, ValueError):
                self._checkpointer.close()
        self._checkpointer = self._pending = None

    def _failure(self, error: Exception) -> OSError:
        return OSError(f"a checkpoint could not be written to {self._directory}: {error}")
