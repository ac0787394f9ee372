"""Checkpoints: the train state and the data position, saved together. Only this and the writer know Orbax."""

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from orbax.checkpoint import v1 as ocp

from training.checkpoint_files import check_record, checkpoint_directories, saved_metrics, sealed, set_aside
from training.checkpoint_writer import CheckpointWriter
from training.checksum import checksums
from training.directions import Direction
from training.retry import warn

# Orbax logs every step of its work, and each failure several times over. What fails is raised, below.
logging.getLogger("absl").addFilter(lambda record: "orbax" not in record.pathname)


class DamagedCheckpointError(OSError):
    """A checkpoint cannot be read."""


class CheckpointManager:
    """The newest `keep` checkpoints of a run and, of those saved with metrics, the best one; one directory per step.

    Used as a context manager, since leaving it waits for the last save: a process that ends
    normally has its checkpoint. A save becomes visible by one rename, so a process that is killed while it
    saves leaves a temporary directory, which nothing reads and the next process that saves removes.

        with CheckpointManager(directory, keep=3) as checkpoints:
            step, state, data = checkpoints.restore_newest(like) or (0, new, {})
            checkpoints.save(step, state, {"position": position})

    A checkpoint that is not whole, cannot be read, or holds other bits than were saved (`training.checksum`), is named
    on stderr, once, and passed over. It stays as it is
    until this process saves: then it is renamed `STEP.damaged`. Reading alone changes nothing on disk.

    Every process of a run takes part in every call.

    Args:
        directory: of all of them; made by the first save.
        keep: how many of the newest.
        best_metric: the metric that tells which one is the best. None: only the newest are kept.
        direction: which way `best_metric` is better. None, not known: none is kept, or found, for being the best.
        keep_every: checkpoints of multiples of it are kept for good. 0: none.
    """

    def __init__(
        self,
        directory: str | Path,
        keep: int,
        best_metric: str | None = None,
        direction: Direction | None = None,
        keep_every: int = 0,
    ):
        if keep < 1:
            raise ValueError(f"keep is {keep}: at least 1 checkpoint has to be kept")
        registry = ocp.handlers.local_registry()
        registry.add(ocp.handlers.JsonHandler, checkpointable_name="data")
        self._context = ocp.Context()
        self._context.checkpointables.registry = registry
        self._context.pytree.loading.partial_load = True  # `_read` itself compares the trees
        policies = ocp.training.preservation_policies
        kept = [policies.LatestN(keep)]
        if keep_every:
            kept.append(policies.EveryNSteps(keep_every))
        self.best_metric, self._direction = best_metric, direction
        if best_metric is not None and direction is not None:
            best = policies.BestN(
                get_metric_fn=lambda metrics: metric_key(metrics.get(best_metric), direction),
                n=1,
                keep_checkpoints_without_metrics=False,
            )
            kept.append(best)
        self._policy = policies.AnyPreservationPolicy(kept)
        self._directory = Path(directory).absolute()
        self._writer = CheckpointWriter(self._directory, self._open_checkpointer)
        self._unreadable: dict[int, str] = {}
        self._named: set[int] = set()
        self._entered = False

    def __enter__(self) -> "CheckpointManager":
        self._entered = True
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: object) -> None:
        try:
            self.close()
        except OSError:
            if error is None:
                raise

    def latest(self) -> int | None:
        """Return the newest saved step, or None. Waits for a save that is still being written."""
        steps = self.steps()
        return steps[-1] if steps else None

    def steps(self) -> list[int]:
        """Return the steps of the whole checkpoints, the newest last. Waits for a save that is still being written."""
        return self._look()[0]

    def best(self) -> tuple[int, float] | None:
        """Return the best step by `best_metric`, the newer of equals, and its value; None if none was measured.

        Raises:
            ValueError: which way `best_metric` is better is not known.
        """
        if self.best_metric is None:
            return None
        if self._direction is None:
            raise ValueError(f"which way {self.best_metric} is better is not declared, so none is the best by it")
        found = []
        for step in self.steps():
            value = saved_metrics(self._directory / str(step)).get(self.best_metric)
            if (good := metric_key(value, self._direction)) > -math.inf:
                found.append((good, step, value))
        return max(found)[1:] if found else None

    def save(self, step: int, state: Any, data: dict[str, Any], metrics: Mapping[str, float] | None = None) -> None:
        """Save `state` and `data` as checkpoint `step`, in the background.

        The state's buffers may be donated as soon as this returns. A step that is already saved is left as it is
        (a resumed run passes the step it started from again). The previous save is waited for.

        A save that fails is tried again, as `training.checkpoint_writer` says.

        Args:
            step: number of finished steps.
            state: pytree of arrays, typed PRNG keys among them; sharded arrays keep nothing of their mesh.
            data: small dict that JSON can hold, such as {"position": 7}.
            metrics: what this state was measured to do. Without, it cannot be the best.

        Raises:
            OSError: as `CheckpointWriter.save`.
        """
        if not self._entered:
            raise RuntimeError("save() outside of `with CheckpointManager(...)`: nothing would wait for the last save")
        measured = None if metrics is None else {name: float(value) for name, value in metrics.items()}
        record = sealed({"data": data, "checksums": checksums(state), "metrics": measured})
        self._writer.save(step, state, record, measured)

    def restore(self, like: Any, step: int | None = None, *, part: str = "") -> tuple[Any, dict[str, Any]]:
        """Restore the state, or a part of it, and the data of checkpoint `step`, of the newest one by default.

        Args:
            like: pytree of arrays or `jax.ShapeDtypeStruct` with the wanted shapes, dtypes and shardings, which
                may be others than those it was saved with; without a sharding, the first local device.
            step: a saved step.
            part: path of the subtree of the state that `like` describes, such as "params" or "opt_state/average"; no
                other array is read. Empty: the whole state.

        Raises:
            FileNotFoundError: there is no such checkpoint, or none that is whole.
            DamagedCheckpointError: checkpoint `step` cannot be read.
            ValueError: the checkpoint holds another tree; names the first leaf that differs.
        """
        steps = self.steps()
        if step is None:
            if (newest := self.restore_newest(like, part=part)) is not None:
                return newest[1:]
        elif step in steps:
            return self._read(like, step, part)
        wanted = "" if step is None else f" of step {step}"
        found = f"found steps {', '.join(map(str, steps))}" if steps else "found none"
        raise FileNotFoundError(f"no checkpoint{wanted} in {self._directory}: {found}")

    def restore_newest(self, like: Any, *, part: str = "") -> tuple[int, Any, dict[str, Any]] | None:
        """Restore the newest checkpoint that can be read: its step, state and data; None if none was ever saved.

        Args:
            like, part: as for `restore`. With a part, damage elsewhere in the state may go unnoticed.

        Raises:
            FileNotFoundError: there are checkpoints, and none of them can be read.
            ValueError: the newest one holds another tree; names the first leaf that differs.
        """
        while steps := self.steps():
            try:
                state, data = self._read(like, steps[-1], part)
            except DamagedCheckpointError as error:
                self._unreadable[steps[-1]] = str(error)
                continue
            if jax.process_count() > 1:  # what one of them could not read, none may take
                multihost_utils.assert_equal(np.int32(steps[-1]), "the processes found different checkpoints")
            return steps[-1], state, data
        if self._look()[1]:
            raise FileNotFoundError(f"no checkpoint in {self._directory} is whole: remove it to begin anew")
        return None

    def close(self) -> None:
        """Wait for the last save and close Orbax's managers.

        Raises:
            OSError: the last save could not be written (unless `save` has said so already).
        """
        self._writer.close()

    def _look(self) -> tuple[list[int], dict[int, str]]:
        """Return the steps of the whole checkpoints, and the defects of the others, each of which is logged once."""
        self._writer.wait()
        if self._writer.is_open:
            return self._writer.steps, {}
        steps, wrong = checkpoint_directories(self._directory)
        wrong |= self._unreadable
        for step in wrong.keys() - self._named:
            self._named.add(step)
            warn(f"{self._directory / str(step)} is passed over: {wrong[step]}")
        return [step for step in steps if step not in wrong], wrong

    def _open_checkpointer(self) -> ocp.training.Checkpointer:
        """Orbax's own, which takes each directory with a number for a checkpoint: what is none is put aside before."""
        wrong = self._look()[1]
        if jax.process_index() == 0:
            for step in wrong:
                set_aside(self._directory / str(step))
        if jax.process_count() > 1:
            multihost_utils.sync_global_devices("damaged checkpoints are set aside")
        return ocp.training.Checkpointer(
            self._directory, context=self._context, preservation_policy=self._policy, cleanup_tmp_directories=True
        )

    def _read(self, like: Any, step: int, part: str) -> tuple[Any, dict[str, Any]]:
        keys, path = part.split("/") if part else [], self._directory / str(step)
        like = jax.tree.map(_with_sharding, like)
        for key in reversed(keys):
            like = {key: like}
        try:
            with self._context:
                stored = _describe(ocp.checkpointables_metadata(path).metadata["state"])
        except Exception as error:
            raise _damaged(path, error) from error
        if not stored:  # Orbax says no more than that
            raise _damaged(path, "no array of its state can be read")
        # Orbax would cast another dtype silently, and its message on another tree is a page long.
        stored = {name: leaf for name, leaf in stored.items() if not part or f"{name}/".startswith(f"{part}/")}
        self._compare(step, stored, _describe(like, keys_as_data=True))
        try:
            with self._context:
                restored = ocp.load_checkpointables(path, {"data": None})
                restored |= ocp.load_checkpointables(path, {"state": like})
        except Exception as error:  # of many kinds, and pages to say so
            raise _damaged(path, error) from error
        state, data = restored["state"], restored["data"]
        self._compare(step, _describe(state), _describe(like))
        try:
            record = check_record(data)
        except ValueError as error:
            raise _damaged(path, error) from error
        if record is not None:  # versions before December 7, 2026, saved the data alone
            data = record["data"]
            for name, found in checksums(state).items():
                if record["checksums"].get(name) != found:
                    raise _damaged(path, f"{name} is not what was saved")
        for key in keys:
            state = state[key]
        return state, data

    def _compare(self, step: int, saved: dict[str, str], wanted: dict[str, str]) -> None:
        for path in [*wanted, *saved]:
            if saved.get(path) != wanted.get(path):
                raise ValueError(
                    f"checkpoint {self._directory / str(step)} does not fit at {path}: "
                    f"saved {saved.get(path, 'nothing')}, wanted {wanted.get(path, 'nothing')}"
                )


def metric_key(value: float | None, direction: Direction) -> float:
    """Return a metric's value, negated if less is better; −∞ where it is missing or not a finite number."""
    if value is None or not math.isfinite(value):
        return -math.inf
    return -value if direction == "min" else value


def _damaged(path: Path, why: object) -> DamagedCheckpointError:
    reason = f"{type(why).__name__}: {why}" if isinstance(why, Exception) else str(why)
    return DamagedCheckpointError(f"{path} cannot be read, it may be damaged ({' '.join(reason.split())[:120]})")


def _with_sharding(leaf: Any) -> Any:
    if isinstance(leaf, jax.ShapeDtypeStruct) and leaf.sharding is None:
        return leaf.update(sharding=jax.sharding.SingleDeviceSharding(jax.local_devices()[0]))
    return leaf


def _describe(tree: Any, keys_as_data: bool = False) -> dict[str, str]:
    """{"params/encoder/scale": "float32[2, 128]", ...}; typed keys as the integers they are stored as if asked."""
    described = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        if keys_as_data and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.eval_shape(jax.random.key_data, leaf)
        described[jax.tree_util.keystr(path, simple=True, separator="/")] = f"{leaf.dtype}{list(leaf.shape)}"
    return described
