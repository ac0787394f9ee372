"""The trials of a sweep as processes: each is `train.py` with its own directory, seed, log and share of the cores.

A trial that raises, runs out of memory, is killed or meets a NaN is marked as failed, with the reason, and the others
go on. A signal to the sweep is passed on to its trials, which save their state; the same command goes on from there,
after `kill -9` too.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sweeps.study import HEARTBEAT, Started, Study
from training.stop import PreemptionGuard
from workdir.metric_writer import read_metrics
from workdir.run_directory import RunDirectoryError

TRAIN = Path(__file__).resolve().parent.parent / "train.py"
POLL = 0.2
"""Seconds between two looks at the trials' processes."""
DATABASE_POLL = 2.0
"""Seconds between two looks at the database, while there is nothing to start."""


@dataclass
class Process:
    """A trial that is being trained."""

    started: Started
    process: subprocess.Popen[bytes]
    slot: int
    """Which of the workers' shares of the cores it has."""
    clock: float
    heartbeat: float
    seen: int = 0
    """Size of its curves when they were last read."""
    pruned_at: int | None = None
    """Step after which it is told to stop early."""


def run_trials(study: Study, workers: int) -> None:
    """Train the study's trials, `workers` at a time, until none is left, here or on another machine.

    Raises:
      SystemExit: a signal; the trials have saved their state. The code is 128 + the signal's number.
    """
    name, looked, said = study.sweep.experiment.name, 0.0, False
    running: dict[int, Process] = {}
    with PreemptionGuard() as stop:
        try:
            while True:
                for slot, process in list(running.items()):
                    if process.process.poll() is not None:
                        del running[slot]
                        _finish(study, process, stop.signal is not None)
                        looked = 0.0
                    elif not stop.signal:
                        _watch(study, process)
                if stop.signal:
                    break
                if len(running) < workers and time.monotonic() - looked > DATABASE_POLL:
                    started = study.take()
                    if started is not None:
                        slot = next(slot for slot in range(workers) if slot not in running)
                        if (process := _start(study, started, slot, workers)) is not None:
                            running[slot] = process
                        continue
                    looked = time.monotonic()
                    if not running:
                        left = study.unfinished()
                        if not left:
                            return
                        if not said:
                            print(f"{name}: waiting for {left} trials of other processes", flush=True)
                            said = True
                time.sleep(POLL)
        finally:
            # By a signal, or by an error of ours: the trials save their state, and go on with the same command.
            for process in running.values():
                process.process.terminate()
            for process in running.values():
                process.process.wait()
                _finish(study, process, True)
        print(f"{name}: stopped by {stop.signal.name}; the same command goes on", flush=True)
        raise SystemExit(stop.exit_code)


def _start(study: Study, started: Started, slot: int, workers: int) -> Process | None:
    """Start the process of a trial; None for one whose run is finished, and which only had to be marked so."""
    files = started.files
    if (value := _value(study, started)) is not None:
        _complete(study, started, value)
        return None
    words = study.sweep.words(started.params, started.seed)
    number, searched = started.trial.number, _shown(started, study)
    print(f"trial {number:04d}: {'resumed' if started.resumed else 'started'}: {searched}", flush=True)
    with files.log.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, str(TRAIN), *words, "--workdir", str(files.run.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=_environment(study, workers),
            pass_fds=[started.lock.fileno()],
            start_new_session=True,  # Ctrl-C comes to the sweep alone, which passes it on
            preexec_fn=_prepare(_cores(slot, workers)),
        )
    return Process(started, process, slot, time.monotonic(), time.monotonic())


def _watch(study: Study, process: Process) -> None:
    """Give a sign of life, and tell the study the validation metrics that have come."""
    if time.monotonic() - process.heartbeat > HEARTBEAT:
        study.heartbeat(process.started)
        process.heartbeat = time.monotonic()
    curves = process.started.files.run.metrics
    try:
        size = curves.stat().st_size
    except FileNotFoundError:  # not begun, or removed by a run that has failed before a checkpoint
        return
    if size == process.seen or process.pruned_at is not None:
        return
    process.seen = size
    metric, steps = study.sweep.metric, study.sweep.experiment.config.train.steps
    for row in read_metrics(curves.parent):
        value = row.get(metric) if row["split"] == "validation" else None
        if value is None or not math.isfinite(value):
            continue
        if study.report(process.started, row["step"], value) and row["step"] < steps:
            process.pruned_at = row["step"]
            process.process.terminate()
            return


def _finish(study: Study, process: Process, stopping: bool) -> None:
    """Mark a trial whose process has ended. One that the sweep's own end has stopped stays as it is."""
    started, code, value = process.started, process.process.returncode, _value(study, process.started)
    name, before = f"trial {started.trial.number:04d}", started.trial.user_attrs.get("seconds", 0.0)
    started.trial.set_user_attr("seconds", round(before + time.monotonic() - process.clock, 1))
    if code == 0 and value is not None:
        _complete(study, started, value)
    elif process.pruned_at is not None:
        study.prune(started, f"stopped early after step {process.pruned_at:,}")
        print(f"{name}: stopped early after step {process.pruned_at:,}", flush=True)
    elif not stopping:
        reason = _reason(code, started, study.sweep.metric)
        study.fail(started, reason)
        print(f"{name}: failed: {reason} (its log: {started.files.log})", flush=True)
    started.lock.close()


def _complete(study: Study, started: Started, value: float) -> None:
    study.complete(started, value)
    print(f"trial {started.trial.number:04d}: {study.sweep.metric.replace('_', ' ')} {value:.6g}", flush=True)
    started.lock.close()


def _value(study: Study, started: Started) -> float | None:
    """The metric in the result of a finished run; None if it is not finished, or its metric is no number."""
    try:
        result = started.files.run.finished
    except RunDirectoryError:
        return None
    value = (result or {}).get("metrics", {}).get(f"validation_{study.sweep.metric}")
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _reason(code: int, started: Started, metric: str) -> str:
    """Why a process has failed: how it ended, and the last line that it printed."""
    said = started.files.last_line()
    said = said.removeprefix("python train.py: ")
    if code == -signal.SIGKILL:
        return "killed by SIGKILL, as the kernel does when memory runs out"
    if code < 0:
        return f"killed by {signal.Signals(-code).name}" + (f": {said}" if said else "")
    if code == 0:
        return f"no validation {metric} in its result"
    return said or f"exit code {code}"


def _shown(started: Started, study: Study) -> str:
    values = [
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in started.params.items()
    ]
    if len(study.sweep.seeds) > 1:
        values.append(f"train.seed={started.seed}")
    return " ".join(values)


def _cores(slot: int, workers: int) -> set[int]:
    """The cores of one of `workers` processes, an equal share of this process's; all, where there are fewer."""
    if not hasattr(os, "sched_getaffinity"):
        return set()
    cores = sorted(os.sched_getaffinity(0))
    return set(cores[slot::workers]) if len(cores) >= workers else set(cores)


def _environment(study: Study, workers: int) -> dict[str, str]:
    """This process's environment, with a compilation cache and with a share of a GPU's memory, unless it has its own.

    Optimizer options are arguments of the compiled step, so that trials of one shape find it in the cache. JAX would
    take three quarters of a GPU's memory for each process.
    """
    own = {"JAX_COMPILATION_CACHE_DIR": str(study.sweep.directory.resolve() / "compilation_cache")}
    if workers > 1:
        own["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{0.9 / workers:.3f}"
    return own | os.environ


def _prepare(cores: set[int]) -> Callable[[], None]:
    """What a process does before it becomes `train.py`: take its cores, and ask for SIGTERM when the sweep dies."""
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None

    def prepare() -> None:
        if cores:
            os.sched_setaffinity(0, cores)
        if libc is not None:
            libc.prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG

    return prepare
