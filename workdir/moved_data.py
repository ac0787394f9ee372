"""Data that have moved: where they lie is no part of a run, as long as they are those that it began with."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from data.mixture import parse_mixture
from data.sources.grammar import parse_source
from experiments.experiment import config_record
from workdir.data_record import FILE_NAME, check_data_record
from workdir.run_directory import RunDirectory

if TYPE_CHECKING:
    from experiments.experiment import Experiment


def run_record(experiment: Experiment) -> dict[str, Any]:
    """`config_record`; of a run that was there before, with the place of its data as it was then.

    The place is data.source and data.directory, of sources that are files or TFDS datasets, in a mixture with the same
    shares. Whoever trains holds the data themselves against `data.json`; of a finished run, which is only read back,
    it is done here.

    Raises:
      RunDirectoryError, ValueError: a finished run, and the data are not its own, or cannot be read.
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
    except (OSError, ValueError, KeyError, TypeError):  # not as it should be: `open_run` says so
        return record
    record["data"] |= then
    if run.finished is not None:
        check_data_record(run, experiment.data(experiment.config, run.tokenizers))
    return record


def _same_kinds(then: str, now: str) -> bool:
    """Whether one may be the other after a move, as far as their names tell."""
    for (one, share), (other, new_share) in zip(parse_mixture(then), parse_mixture(now), strict=True):
        if share != new_share:
            return False
        if one != other and "builder" in (parse_source(one).kind, parse_source(other).kind):
            return False  # which is generated, and has no place
    return True
