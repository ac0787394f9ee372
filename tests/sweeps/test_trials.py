"""Watching the processes of a sweep's trials."""

import time
from pathlib import Path
from types import SimpleNamespace

from sweeps.trials import Process, _watch
from workdir.run_directory import RunDirectory


def test_curves_that_a_failed_run_removes_while_they_are_watched(tmp_path, monkeypatch):
    """A run that fails before a checkpoint removes its files: there may be none right after one was seen."""
    started = SimpleNamespace(files=SimpleNamespace(run=RunDirectory(tmp_path / "0000")))
    metric = SimpleNamespace(metric="loss", experiment=SimpleNamespace(config=SimpleNamespace(train=SimpleNamespace())))
    metric.experiment.config.train.steps = 10
    process = Process(started, None, 0, time.monotonic(), time.monotonic())
    monkeypatch.setattr(Path, "exists", lambda path: True)
    _watch(SimpleNamespace(sweep=metric), process)
    assert process.seen == 0

    sizes = iter([SimpleNamespace(st_size=100)])
    monkeypatch.setattr(Path, "stat", lambda path: next(sizes))
    _watch(SimpleNamespace(sweep=metric), process)  # removed between the look at its size and the reading
    assert process.pruned_at is None
