"""Runs whose data have moved: a config may name another path, as long as the data are those the run began with."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from data.sources.grammar import parse_mixture, parse_source
from experiments.experiment import config_record
from workdir.data_record import FILE_NAME, check_data_record
from workdir.run_directory import RunDirectory

if TYPE_CHECKING:
    from experiments.experiment import Experiment


def run_record(experiment: Experiment) -> dict[str, Any]:
    """Return `config_record(experiment)`, with data.source and data.directory as the run in its directory has them.

    They are replaced only if both sources can be the same data after a move: files or TFDS datasets, in a mixture with
    the same shares. `train` compares the data themselves with `data.json`; here it is done for a finished run, whose
    data are not read again.

    Raises:
      RunDirectoryError, ValueError: a finished run, and its data have changed, or cannot be read.
    """
    record, run = config_record(experiment), RunDirectory(experiment.workdir)
    if not (run.path / FILE_NAME).exists():
        return record
    try:
        saved = json.loads(run.config.read_text(encoding="utf-8"))["data"]
        then = {name: saved[name] for name in ("source", "directory")}
        moved = any(record["data"][name] != then[name] for name in then)
        if not moved or not _same_kinds(then["source"], record["data"]["source"]):
            return record
    except (OSError, ValueError, KeyError, TypeError):  # damaged: `open_run_directory` names the file
        return record
    record["data"] |= then
    if run.finished is not None:
        check_data_record(run, experiment.data(experiment.config, run.tokenizers))
    return record


def _same_kinds(then: str, now: str) -> bool:
    """Whether two sources may be the same data after a move, by their names."""
    for (one, share), (other, new_share) in zip(parse_mixture(then), parse_mixture(now), strict=True):
        if share != new_share:
            return False
        if one != other and "builder" in (parse_source(one).kind, parse_source(other).kind):
            return False  # a dataset that is generated has no path
    return True
