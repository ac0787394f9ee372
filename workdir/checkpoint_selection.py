"""Selection of a run's parameters: best, last, a step, the mean of several checkpoints, or the moving average.

Only parameters are read: with the optimizer's moments a checkpoint is three times as large.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from training.checkpoint import CheckpointManager
from training.ema import AveragedState


@dataclass(frozen=True)
class SelectedParams:
    """Parameters of a run, as `select_params` returns them."""

    params: Any
    """Nested dict of arrays."""
    name: str
    """For a file name: `step1000`, `average5-step1000`, `ema-step1000`."""
    description: str
    """Human-readable: `step 1,000, the last`."""


def select_params(checkpoints: CheckpointManager, like: Any, choice: str, keep: int) -> SelectedParams:
    """Restore the parameters that `choice` names.

    - `last`: those of the newest checkpoint that can be read.
    - `best`: those of the checkpoint with the best `best_metric`, of equals the newest.
    - STEP, a number: those of that step.
    - `average:K`: the mean of the newest K checkpoints, added up in float64, rounded once.
    - `ema`: the moving average that was kept while they were trained (`--train.ema`), at the newest checkpoint.

    Args:
      like: a `TrainState` of arrays or `jax.ShapeDtypeStruct`.
      keep: how many of the newest checkpoints the run keeps. An older one is there only because it was the best, and
        is part of no average.

    Raises:
      ValueError: another word; no such checkpoint, fewer than K, no metrics, or no moving average; names what there is.
      OSError: a checkpoint that is needed cannot be read; names it.
    """
    if choice == "last":
        step, params = _newest(checkpoints, like.params, "params")
        return SelectedParams(params, f"step{step}", f"step {step:,}, the last")
    if choice == "ema":
        if not isinstance(like.opt_state, AveragedState):
            raise ValueError("the run has kept no moving average of its parameters: train with --train.ema 0.999, say")
        step, average = _newest(checkpoints, like.opt_state.average, "opt_state/average")
        return SelectedParams(average, f"ema-step{step}", f"the moving average at step {step:,}")
    steps = checkpoints.steps()
    if not steps:
        raise ValueError("there is no checkpoint yet")
    there = f"there are steps {', '.join(map(str, steps))}"
    kind, colon, count = choice.partition(":")
    if kind == "average" and colon:
        number = _number(count)
        if not number:
            raise ValueError(f"checkpoint average:K wants a number of checkpoints, 1 or more, got {choice!r}")
        newest = steps[-keep:]
        if number > len(newest):
            raise ValueError(
                f"{choice} wants the newest {number} checkpoints, and the run has kept {len(newest)} "
                f"({', '.join(map(str, newest))}); train.max_to_keep, here {keep}, says how many are kept"
            )
        return _mean(checkpoints, like.params, newest[-number:])
    if choice == "best":
        if (best := checkpoints.best()) is None:
            raise ValueError(
                f"no checkpoint was saved with a finite {checkpoints.best_metric}, which tells the best; {there}"
            )
        step, value = best
        description = f"step {step:,}, the best by validation {checkpoints.best_metric} ({value:.4f})"
        return SelectedParams(_params(checkpoints, like.params, step), f"step{step}", description)
    step = _number(choice)
    if step is None:
        raise ValueError(f"checkpoint must be best, last, STEP, average:K or ema, got {choice!r}")
    if step not in steps:
        raise ValueError(f"no checkpoint of step {step}: {there}")
    return SelectedParams(_params(checkpoints, like.params, step), f"step{step}", f"step {step:,}")


def _newest(checkpoints: CheckpointManager, like: Any, part: str) -> tuple[int, Any]:
    if (newest := checkpoints.restore_newest(like, part=part)) is None:
        raise ValueError("there is no checkpoint yet")
    step, restored, _ = newest
    return step, restored


def _mean(checkpoints: CheckpointManager, like: Any, steps: list[int]) -> SelectedParams:
    total = None
    for step in steps:
        params = jax.tree.map(lambda x: np.asarray(x, np.float64), _params(checkpoints, like, step))
        total = params if total is None else jax.tree.map(np.add, total, params)
    dtypes = jax.tree.map(lambda x: x.dtype, like)
    mean = jax.tree.map(lambda x, dtype: jax.numpy.asarray(x / len(steps), dtype), total, dtypes)
    description = f"the mean of the last {len(steps)}, steps {', '.join(f'{step:,}' for step in steps)}"
    return SelectedParams(mean, f"average{len(steps)}-step{steps[-1]}", description)


def _params(checkpoints: CheckpointManager, like: Any, step: int) -> Any:
    return checkpoints.restore(like, step, part="params")[0]


def _number(word: str) -> int | None:
    return int(word) if word.isascii() and word.isdecimal() else None
