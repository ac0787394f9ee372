"""Checkpoints: the train state and the data position, saved together. The only file that knows Orbax."""

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
from orbax.checkpoint import v1 as ocp

# Orbax logs every step of its work, and each failure several times over. What fails is raised, below.
logging.getLogger("absl").addFilter(lambda record: "orbax" not in record.pathname)


LOWER_IS_BETTER = {"loss", "error", "perplexity", "nats", "bits"}
"""Metrics with one of these words in their name (`word_error_rate`) are the better the lower; all others the higher."""


class Checkpoints:
    """The newest `keep` checkpoints of a run and, of those saved with metrics, the best one; one directory per step.

    Used as a context manager, since leaving it waits for the last save: a process that ends
    normally has its checkpoint. A save becomes visible by one rename, so a process that is killed while it
    saves leaves a temporary directory that `latest` and `restore` do not see, and the next save replaces.

        with Checkpoints(directory, keep=3) as checkpoints:
            state, data = checkpoints.restore(like)
            checkpoints.save(step, state, {"position": position})

    Every process of a run takes part in every call.

    Args:
        directory: of all of them.
        keep: how many of the newest.
        best_metric: the metric that tells which one is the best. None: only the newest are kept.
    """

    def __init__(self, directory: str | Path, keep: int, best_metric: str | None = None):
        if keep < 1:
            raise ValueError(f"keep is {keep}: at least 1 checkpoint has to be kept")
        registry = ocp.handlers.local_registry()
        registry.add(ocp.handlers.JsonHandler, checkpointable_name="data")
        context = ocp.Context()
        context.checkpointables.registry = registry
        policies = ocp.training.preservation_policies
        policy, self.best_metric = policies.LatestN(keep), best_metric
        if best_metric is not None:
            best = policies.BestN(
                get_metric_fn=lambda metrics: goodness(best_metric, metrics),
                n=1,
                keep_checkpoints_without_metrics=False,
            )
            policy = policies.AnyPreservationPolicy([policy, best])
        self._directory = Path(directory).absolute()
        self._checkpointer = ocp.training.Checkpointer(
            self._directory,
            context=context,
            preservation_policy=policy,
        )
        self._entered = False
        self._failed = False

    def __enter__(self) -> "Checkpoints":
        self._entered = True
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: object) -> None:
        try:
            self.close()
        except OSError:
            if error is None:
                raise

    def latest(self) -> int | None:
        """The newest saved step, or None. Waits for a save that is still being written."""
        self._wait()
        newest = self._checkpointer.latest
        return None if newest is None else newest.step

    def steps(self) -> list[int]:
        """The saved steps, the newest last. Waits for a save that is still being written."""
        self._wait()
        return [saved.step for saved in self._checkpointer.checkpoints]

    def best(self) -> tuple[int, float] | None:
        """The step that is the best by `best_metric`, the newer of equals, and its value; None if none was measured."""
        self._wait()
        found = [
            (goodness(self.best_metric, saved.metrics), saved.step, saved.metrics[self.best_metric])
            for saved in self._checkpointer.checkpoints
            if self.best_metric in (saved.metrics or {})
        ]
        return max(found)[1:] if found else None

    def save(self, step: int, state: Any, data: dict[str, Any], metrics: Mapping[str, float] | None = None) -> None:
        """Save `state` and `data` as checkpoint `step`, in the background.

        The state's buffers may be donated as soon as this returns. A step that is already saved is left as it is
        (a resumed run passes the step it started from again). The previous save is waited for.

        Args:
            step: number of finished steps.
            state: pytree of arrays, typed PRNG keys among them; sharded arrays keep nothing of their mesh.
            data: small dict that JSON can hold, such as {"position": 7}.
            metrics: what this state was measured to do. Without, it cannot be the best.

        Raises:
            OSError: this save, or the one before it, could not be written.
        """
        if not self._entered:
            raise RuntimeError("save() outside of `with Checkpoints(...)`: nothing would wait for the last save")
        self._wait()
        if any(saved.step == step for saved in self._checkpointer.checkpoints):
            return
        # `force`: whether to save is the loop's decision, not that of Orbax's save policy.
        measured = None if metrics is None else {name: float(value) for name, value in metrics.items()}
        self._checkpointer.save_checkpointables_async(
            step, {"state": state, "data": data}, force=True, metrics=measured
        )

    def restore(self, like: Any, step: int | None = None) -> tuple[Any, dict[str, Any]]:
        """The state and the data of checkpoint `step`, of the newest one by default.

        Args:
            like: pytree of arrays or `jax.ShapeDtypeStruct` with the wanted shapes, dtypes and shardings, which
                may be others than those it was saved with; without a sharding, the first local device.
            step: a saved step.

        Raises:
            FileNotFoundError: there is no such checkpoint.
            ValueError: the checkpoint holds another tree; names the first leaf that differs.
        """
        self._wait()
        steps = [saved.step for saved in self._checkpointer.checkpoints]
        if not steps or (step is not None and step not in steps):
            wanted = "" if step is None else f" of step {step}"
            found = f"found steps {', '.join(map(str, steps))}" if steps else "found none"
            raise FileNotFoundError(f"no checkpoint{wanted} in {self._directory}: {found}")
        step = steps[-1] if step is None else step
        like = jax.tree.map(_with_sharding, like)
        # Orbax would cast another dtype silently, and its message on another tree is a page long.
        stored = self._checkpointer.checkpointables_metadata(step).metadata["state"]
        self._compare(step, _describe(stored), _describe(like, keys_as_data=True))
        restored = self._checkpointer.load_checkpointables(step, {"state": like, "data": None})
        self._compare(step, _describe(restored["state"]), _describe(like))
        return restored["state"], restored["data"]

    def close(self) -> None:
        """Wait for the last save and let go of the directory.

        Raises:
            OSError: the last save could not be written (unless `save` has said so already).
        """
        try:
            self._checkpointer.close()
        except (OSError, ValueError) as error:
            if not self._failed:
                raise self._failure(error) from error

    def _wait(self) -> None:
        try:
            self._checkpointer.wait()
        except (OSError, ValueError) as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> OSError:
        self._failed = True
        return OSError(f"a checkpoint could not be written to {self._directory}: {error}")

    def _compare(self, step: int, saved: dict[str, str], wanted: dict[str, str]) -> None:
        for path in [*wanted, *saved]:
            if saved.get(path) != wanted.get(path):
                raise ValueError(
                    f"checkpoint {self._directory / str(step)} does not fit at {path}: "
                    f"saved {saved.get(path, 'nothing')}, wanted {wanted.get(path, 'nothing')}"
                )


def goodness(metric: str, metrics: Mapping[str, float]) -> float:
    """The value of `metric`, its sign such that more is better; −∞ where it is missing or NaN."""
    value = metrics.get(metric)
    if value is None or math.isnan(value):
        return -math.inf
    return -value if LOWER_IS_BETTER & set(metric.split("_")) else value


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
