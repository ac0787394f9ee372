"""Ahead-of-time compilation of a step: one program for each shape of batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax

from training.loss import Batch


def compile_step(step: Callable, state: Any, batches: Sequence[Batch]) -> Callable[[Any, Batch], Any]:
    """Compile `step` for each of `batches`; return `step(state, batch)`, which runs the program for its shape.

    Nothing is compiled while the run trains, so no step is slower than the others, and memory that does not suffice is
    noticed at once. The programs are compiled side by side: XLA works without holding Python's lock. With
    JAX_DISABLE_JIT there is nothing to compile, and the step runs operation by operation.

    Args:
      step: jitted; a train step, or an eval step with the parameters for `state`.
      state, batches: arrays as the step will get them, or `jax.ShapeDtypeStruct`s; none of them is used up.
    """
    if jax.config.jax_disable_jit:  # how people debug: every operation by itself, and nothing to compile
        return step
    lowered = {_shapes(batch): step.lower(state, batch) for batch in batches}
    with ThreadPoolExecutor() as pool:
        programs = dict(zip(lowered, pool.map(lambda each: each.compile(), lowered.values()), strict=True))

    def run(state: Any, batch: Batch) -> Any:
        program = programs.get(_shapes(batch))
        if program is None:
            raise ValueError(f"a batch has shapes {dict(_shapes(batch))}, and the step was compiled for others")
        return program(state, batch)

    return run


def _shapes(batch: Batch) -> tuple[tuple[str, tuple[int, ...]], ...]:
    leaves = jax.tree_util.tree_flatten_with_path(batch)[0]
    return tuple((jax.tree_util.keystr(path, simple=True, separator="/"), leaf.shape) for path, leaf in leaves)
