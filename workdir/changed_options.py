"""A run that is resumed with more steps, or with other options of those that change nothing learned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

from training.hyperparameters import Hyperparameters
from training.schedules import Schedule
from training.step import TrainState
from workdir.run_directory import STEPS


def apply_changes(
    changes: Mapping[str, tuple[Any, Any]], state: TrainState, schedule: Schedule, hyper: Hyperparameters
) -> tuple[TrainState, list[str]]:
    """Return a restored state with the hyperparameters of the options as they are now, and lines that say what changed.

    Args:
      changes: of `RunDirectory.changes`.
      hyper: of the config as it is now.
    """
    notes = [f"{name} is {_text(now)} from here on, and was {_text(then)}" for name, (then, now) in changes.items()]
    if not is_longer(changes):
        return state, notes
    notes.append(_describe_schedule(schedule, state.hyperparameters, hyper, int(state.step)))
    hyper = jax.tree.map(lambda new, old: jax.device_put(new, old.sharding), hyper, state.hyperparameters)
    return state._replace(hyperparameters=hyper), notes


def is_longer(changes: Mapping[str, tuple[Any, Any]]) -> bool:
    """Return whether the run is to be trained for more steps than before."""
    return STEPS in changes


def _text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _describe_schedule(schedule: Schedule, then: Hyperparameters, now: Hyperparameters, step: int) -> str:
    """Say what more steps make of the learning rate after `step`: some schedules go by the steps of the whole run."""
    before, planned, after = (float(schedule(*each)) for each in ((step, then), (step + 1, then), (step + 1, now)))
    if planned == after:
        return f"its learning rate goes on as it would have, {after:.3g} in step {step + 1:,}"
    return (
        f"its schedule is that of a run of {int(now['total_steps']):,} steps: the learning rate was {before:.3g} in "
        f"step {step:,} and is {after:.3g} in step {step + 1:,}"
    )
