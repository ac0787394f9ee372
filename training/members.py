"""One program for many trials: train states stacked along a leading axis, each with its own hyperparameters and key.

The step is the one of a single run; `jax.vmap` or `jax.lax.map` takes it over the axis, and `jax.shard_map` spreads the
axis over the devices, which need not talk to each other. Nothing of one member enters another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from training.compilation import compile_step
from training.hyperparameters import Hyperparameters

Method = Literal["vmap", "map"]
"""vmap: every operation is done for all members at once; map (`jax.lax.map`): one member after another."""
WITHOUT = {
    "weight_decay": 0.0,
    "clip_norm": jnp.inf,
    "label_smoothing": 0.0,
    "dropout": 0.0,
    "attention_dropout": 0.0,
}
"""Value of a hyperparameter that one member leaves out and another has."""


def stack_hyperparameters(members: Sequence[Mapping[str, Any]]) -> Hyperparameters:
    """Stack the members' hyperparameters by name, float32 [members].

    Raises:
      ValueError: one member leaves out what cannot be there without effect: `ema`, a part of the train state.
    """
    names = {name: None for member in members for name in member}
    stacked = {}
    for name in names:
        missing = [member for member in members if name not in member]
        if missing and name not in WITHOUT:
            raise ValueError(f"trials with {name} and without cannot be one program")
        stacked[name] = jnp.stack([jnp.float32(member.get(name, WITHOUT.get(name))) for member in members])
    return stacked


def members_mesh() -> Mesh:
    """Return a mesh of all devices in one axis, "members"."""
    return jax.make_mesh((jax.device_count(),), ("members",), axis_types=(AxisType.Auto,))


def members_sharding(mesh: Mesh) -> NamedSharding:
    """Return the sharding of arrays whose first axis is the members', over the devices."""
    return NamedSharding(mesh, PartitionSpec("members"))


def over_members(
    function: Callable[[PyTree, PyTree], PyTree], method: Method, mesh: Mesh, *, shared: bool
) -> Callable[[PyTree, PyTree], PyTree]:
    """Return `function(state, batch)` over stacked states; what it returns is stacked as well.

    Args:
      shared: whether all members have the same batch; else it is stacked like the states.
    """

    def on_one_device(states: PyTree, batch: PyTree) -> PyTree:
        if method == "vmap":
            return jax.vmap(function, in_axes=(0, None if shared else 0))(states, batch)
        if shared:
            return jax.lax.map(lambda state: function(state, batch), states)
        return jax.lax.map(lambda pair: function(*pair), (states, batch))

    along, whole = PartitionSpec("members"), PartitionSpec()
    return jax.shard_map(
        on_one_device, mesh=mesh, in_specs=(along, whole if shared else along), out_specs=along, check_vma=False
    )


def compile_quicker(
    steps: Mapping[Method, Callable], states: PyTree, batches: Sequence[PyTree], repeats: int = 3
) -> tuple[Method, Callable, dict[Method, float]]:
    """Compile jitted `steps`, each `(states, batch) -> (states, metrics)`, side by side, and time them.

    Args:
      states: not used up, also where the steps donate them.
      batches: one of each shape, without a real token, so that a step is the same work for any state.
      repeats: steps that are timed, after one to warm up.

    Returns:
      The quicker method, its compiled step, and the seconds of one step by each method on the largest batch.
    """
    with ThreadPoolExecutor() as pool:
        programs = pool.map(lambda step: compile_step(step, states, batches), steps.values())
        compiled = dict(zip(steps, programs, strict=True))
    largest, seconds = max(batches, key=lambda batch: batch["labels"].size), {}
    for method, step in compiled.items():
        scratch, _ = step(jax.tree.map(jnp.copy, states), largest)
        jax.block_until_ready(scratch)
        began = time.perf_counter()
        for _ in range(repeats):
            scratch, _ = step(scratch, largest)
        jax.block_until_ready(scratch)
        seconds[method] = (time.perf_counter() - began) / repeats
    best = min(seconds, key=lambda method: seconds[method])
    return best, compiled[best], seconds
