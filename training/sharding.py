"""Data parallelism by `jit` over a mesh: the batch split over all devices, everything else replicated."""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec


def data_mesh() -> Mesh:
    """Return a mesh of all devices in one axis, "data".

    Auto axes: the compiler chooses the shardings of intermediates; make_mesh's default is Explicit.
    """
    return jax.make_mesh((jax.device_count(),), ("data",), axis_types=(AxisType.Auto,))


def replicated(mesh: Mesh) -> NamedSharding:
    """Return the sharding of a copy on each device, for the state and the metrics."""
    return NamedSharding(mesh, PartitionSpec())


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Return the sharding of rows split over the devices, for the batch."""
    return NamedSharding(mesh, PartitionSpec("data"))


def check_batch_divisible(rows: int, what: str, mesh: Mesh) -> None:
    """Raises ValueError, with sizes that would do, if `rows` cannot be split evenly over the devices."""
    if rows % mesh.size:
        below = rows // mesh.size * mesh.size
        near = " or ".join(str(size) for size in (below, below + mesh.size) if size)
        raise ValueError(f"{what}={rows} must be a multiple of the {mesh.size} devices, such as {near}")


def device_put(tree: Any, sharding: NamedSharding) -> Any:
    """Copy host arrays to the devices; returns at once. Of several processes, each must have the same arrays, whole."""
    return jax.device_put(tree, sharding)


def make_global_batch(tree: Any, sharding: NamedSharding) -> Any:
    """Assemble a global batch from the rows that `Data.train_batches` gives each process; returns at once.

    The result is the whole batch, of which each process holds its rows. With one process the rows are all.
    """
    return jax.make_array_from_process_local_data(sharding, tree)
