"""A new run that starts from the parameters of another (`--train.init_from RUN`): fine-tuning, or a changed model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from workdir.restore import Run, load_run

if TYPE_CHECKING:
    from experiments.experiment import Experiment
    from training.optimizer import Optimizer
    from training.step import TrainState

TOKENIZER_OPTIONS = ("tokenizer", "target_tokenizer", "normalization")
_SHOWN = 6
"""Names in a line."""


def open_source(experiment: Experiment) -> Run | None:
    """Open the run that `experiment` starts from; None if it starts from nothing.

    Raises:
      ValueError: it is no run with a checkpoint, or reads text in another way than the new run's options say.
      OSError: one of its files is missing.
    """
    path = experiment.config.train.init_from
    if not path:
        return None
    try:
        source = load_run(path)
    except ValueError as error:
        raise ValueError(f"train.init_from: {error}") from error
    if source.is_language_model == (experiment.task == "language_modeling"):
        for name in TOKENIZER_OPTIONS:
            there, here = (getattr(each.config.data, name) for each in (source.experiment, experiment))
            if there != here:
                raise ValueError(
                    f"train.init_from: {path} was trained with --data.{name} {there}, and here it is {here}: its "
                    "parameters belong to its tokens"
                )
    return source


def source_tokenizers(source: Run | None, experiment: Experiment) -> Path | None:
    """Return the directory of the tokenizers that the new run takes over: those its parameters were learned with."""
    if source is None or source.is_language_model != (experiment.task == "language_modeling"):
        return None
    return source.directory.tokenizers


def initialize_from(source: Run | None, state: TrainState, optimizer: Optimizer) -> tuple[TrainState, list[str]]:
    """Replace the new parameters by those of the source's last checkpoint that have the same name and shape.

    Returns:
      The state, its optimizer's begun anew with these parameters, and lines that say which were found, which stay as
      they were initialised, and which of the source went unused. Without a source, `state` itself.

    Raises:
      ValueError: none was found.
      OSError: the checkpoint cannot be read.
    """
    if source is None:
        return state, []
    path, selected = source.directory.path, source.select_params("last")
    there = {_name(keys): leaf for keys, leaf in jax.tree_util.tree_flatten_with_path(selected.params)[0]}
    leaves, tree = jax.tree_util.tree_flatten_with_path(state.params)
    here = {_name(keys): leaf for keys, leaf in leaves}
    matched = {name for name, leaf in here.items() if name in there and there[name].shape == leaf.shape}
    if not matched:
        raise ValueError(f"train.init_from: {path} has no parameter with the name and shape of one of this model's")
    params = tree.unflatten(
        [jax.device_put(there[name], leaf.sharding) if name in matched else leaf for name, leaf in here.items()]
    )
    shardings = jax.tree.map(lambda leaf: leaf.sharding, state.opt_state)
    begin = jax.jit(
        lambda params: optimizer(state.hyperparameters, jnp.float32(0)).init(params), out_shardings=shardings
    )
    size = sum(here[name].size for name in matched)
    lines = [
        f"{len(matched)} of {len(here)} arrays, {size:,} of {sum(leaf.size for leaf in here.values()):,} parameters, "
        f"are those of {path} ({selected.description})"
    ]
    new = [_described(name, leaf, there.get(name)) for name, leaf in here.items() if name not in matched]
    unused = [_described(name, leaf, None) for name, leaf in there.items() if name not in matched]
    lines += [f"{what}: {_listed(names)}" for what, names in (("new", new), ("unused there", unused)) if names]
    return state._replace(params=params, opt_state=begin(params)), lines


def _name(keys: Any) -> str:
    return jax.tree_util.keystr(keys, simple=True, separator="/")


def _described(name: str, leaf: Any, other: Any) -> str:
    there = f", there {list(other.shape)}" if other is not None else ""
    return f"{name} {list(leaf.shape)}{there}"


def _listed(names: list[str]) -> str:
    more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
