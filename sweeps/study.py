"""The study of a sweep: an Optuna study whose trials are trained once each, by any number of processes and machines.

All trials are added at the start, waiting, and what one is follows from its number: of S seeds, trial n has
configuration n // S and seed n % S. So an interrupted sweep has neither fewer trials nor more when it goes on. A
configuration is chosen when its first trial starts, and its other seeds copy it.

A trial that was being trained by a process that is gone continues where it is, from its checkpoint; Optuna's own retry
would add a second trial. This takes three calls below the interface that Optuna documents, all of them in this file.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, Trial, TrialState

from experiments.search_space import Choice, Dimension, Integer, LogUniform
from sweeps.options import Sweep
from sweeps.trial_files import TrialFiles, directory_identity, lock_directory
from workdir.run_directory import RunDirectoryError, config_differences

HEARTBEAT = 30.0
"""Seconds between two signs of life of a trial, for other machines."""
LOST = 600.0
"""Seconds without one after which a trial of another machine is given up."""


@dataclass(frozen=True)
class Started:
    """A trial that this process has taken."""

    trial: Trial
    files: TrialFiles
    params: dict[str, Any]
    seed: int
    lock: IO[bytes]
    """Held by this process and by the trial's."""
    resumed: bool
    """Whether a process before has begun it."""


class Study:
    """The trials of a sweep in a database.

    Args:
      create: False: only open a study that is there, to read it. `self.sweep` has the options that it was made with,
        and `sweep` need not.

    Raises:
      RunDirectoryError: the study is of another sweep, there is none to read, or the database cannot be opened.
    """

    def __init__(self, sweep: Sweep, *, create: bool = True):
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.sweep = sweep
        shared = bool(sweep.options.storage)
        path = sweep.directory / "study.db"
        if not create and not shared and not path.exists():
            raise RunDirectoryError(f"{sweep.directory} has no sweep to report on: there is no {path.name}")
        others = [] if shared or path.exists() or not sweep.directory.is_dir() else os.listdir(sweep.directory)
        if others := sorted(set(others) - {"sweep.lock"}):
            raise RunDirectoryError(
                f"{sweep.directory} holds {others[0]} but no {path.name}, so it is not a sweep's directory: choose "
                "another --workdir"
            )
        url = sweep.options.storage or f"sqlite:///{path.resolve()}"
        name = sweep.directory.name if shared else sweep.experiment.name
        one_at_a_time = lock_directory(sweep.directory) if create else contextlib.nullcontext()
        with one_at_a_time, _database_errors(url):
            # SQLite makes a process that finds the file locked wait, for at most so many seconds.
            wait = {"connect_args": {"timeout": 120}} if url.startswith("sqlite") else {"pool_pre_ping": True}
            storage = optuna.storages.RDBStorage(url, engine_kwargs=wait)
            self._storage = storage
            direction = "maximize" if sweep.maximize else "minimize"
            try:
                if not create:
                    self.study = optuna.load_study(study_name=name, storage=storage)
                else:
                    self.study = optuna.create_study(study_name=name, storage=storage, direction=direction)
                    self.study.set_user_attr("sweep", sweep.record)
            except KeyError:
                raise RunDirectoryError(f"{url} has no study {name!r} to report on") from None
            except optuna.exceptions.DuplicatedStudyError:
                self.study = optuna.load_study(study_name=name, storage=storage)
            if create:
                self._check_record()
            elif self.study.user_attrs.get("sweep", {}).get("experiment") != sweep.experiment.name:
                raise RunDirectoryError(f"{sweep.directory} has no sweep of {sweep.experiment.name}")
            else:
                runs = len(self.study.get_trials(deepcopy=False))
                self.sweep = sweep.recorded(self.study.user_attrs["sweep"], runs)
            self.study.pruner = self._pruner()
            if create:
                self._identity = directory_identity(sweep.directory)
                self._add_trials()

    def trials(self) -> list[FrozenTrial]:
        """The trials of the sweep, by number."""
        return [trial for trial in self.study.get_trials(deepcopy=False) if trial.number < self.sweep.runs]

    def unfinished(self) -> int:
        """Number of trials that wait or train, here or elsewhere."""
        return sum(not trial.state.is_finished() for trial in self.trials())

    def files(self, number: int) -> TrialFiles:
        """The files of a trial."""
        return TrialFiles(self.sweep.directory, number)

    def take(self) -> Started | None:
        """Take a trial to train: first one whose process is gone, then the next that waits; None if there is none now.

        A trial whose machine gave no sign of life for ten minutes is marked as failed.
        """
        trials = self.trials()
        for frozen in sorted(trials, key=lambda trial: trial.state != TrialState.RUNNING):
            if frozen.state == TrialState.RUNNING:
                if not self._is_here(frozen):
                    self._give_up_if_lost(frozen)
                    continue
            elif frozen.state != TrialState.WAITING or self._lacks_its_configuration(frozen, trials):
                continue
            if started := self._try_to_start(frozen):
                return started
        return None

    def take_members(self) -> list[Started] | None:
        """Take the unfinished trials of the next program of `sweep.members` trials, by number; None: there is none."""
        for first in range(0, self.sweep.runs, self.sweep.members):
            taken = []
            for number in range(first, min(first + self.sweep.members, self.sweep.runs)):
                frozen = self.trials()[number]
                if frozen.state.is_finished() or (frozen.state == TrialState.RUNNING and not self._is_here(frozen)):
                    continue
                if (started := self._try_to_start(frozen)) is None:
                    break  # another process has this program
                taken.append(started)
            if taken:
                return taken
        return None

    def heartbeat(self, started: Started) -> None:
        """Say that the trial is being trained."""
        started.trial.set_user_attr("alive", time.time())

    def report(self, started: Started, step: int, value: float) -> bool:
        """Keep the validation metric after `step`; return whether the trial is to be stopped early."""
        if (
            step not in self._storage.get_trial(started.trial._trial_id).intermediate_values
        ):  # of a run before it was resumed
            started.trial.report(value, step)
        return started.trial.should_prune()

    def complete(self, started: Started, value: float) -> None:
        """Mark the trial as finished, with its metric."""
        self.study.tell(started.trial, value)

    def prune(self, started: Started, reason: str) -> None:
        """Mark the trial as stopped early."""
        started.trial.set_user_attr("reason", reason)
        self.study.tell(started.trial, state=TrialState.PRUNED)

    def fail(self, started: Started, reason: str) -> None:
        """Mark the trial as failed, for `reason`."""
        started.trial.set_user_attr("reason", reason)
        self.study.tell(started.trial, state=TrialState.FAIL)

    def seed(self, number: int) -> int:
        """The seed of a trial."""
        return self.sweep.seeds[number % len(self.sweep.seeds)]

    def _check_record(self) -> None:
        for _ in range(100):
            saved = self.study.user_attrs.get("sweep")
            if saved is not None:
                break
            time.sleep(0.1)  # the process that has just made the study is about to write it
        else:
            self.study.set_user_attr("sweep", saved := self.sweep.record)  # or was killed before
        if differences := config_differences(saved, self.sweep.record):
            more = f", and {len(differences) - 3} more" if len(differences) > 3 else ""
            raise RunDirectoryError(
                f"{self.sweep.directory} has another sweep: {', '.join(differences[:3])}{more}; choose another "
                "--workdir"
            )

    def _add_trials(self) -> None:
        """Add trials until there are enough. Another machine may be adding them too: a surplus just waits."""
        for _ in range(len(self.study.get_trials(deepcopy=False)), self.sweep.runs):
            if len(self.study.get_trials(deepcopy=False)) < self.sweep.runs:
                self.study.add_trial(optuna.trial.create_trial(state=TrialState.WAITING))

    def _is_here(self, frozen: FrozenTrial) -> bool:
        """Whether a RUNNING trial was begun in this directory, so that its lock says whether it is still trained."""
        default = None if self.sweep.options.storage else self._identity
        return frozen.user_attrs.get("directory", default) == self._identity

    def _give_up_if_lost(self, frozen: FrozenTrial) -> None:
        begun = frozen.datetime_start.timestamp() if frozen.datetime_start else time.time()
        seconds = time.time() - frozen.user_attrs.get("alive", begun)
        if seconds > LOST:
            host = frozen.user_attrs.get("host", "its machine")
            reason = f"no sign of life from {host} for {seconds / 60:.0f} minutes"
            with contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError):
                self._storage.set_trial_user_attr(frozen._trial_id, "reason", reason)
                self._storage.set_trial_state_values(frozen._trial_id, TrialState.FAIL)

    def _lacks_its_configuration(self, frozen: FrozenTrial, trials: list[FrozenTrial]) -> bool:
        """Whether the trial copies its configuration from one that has none yet."""
        first = frozen.number - frozen.number % len(self.sweep.seeds)
        return first != frozen.number and set(trials[first].params) != set(self.sweep.searched)

    def _try_to_start(self, frozen: FrozenTrial) -> Started | None:
        lock = self.files(frozen.number).try_to_lock()
        if lock is None:
            return None
        started = self._start(frozen, lock)
        if started is None:
            lock.close()
        return started

    def _start(self, frozen: FrozenTrial, lock: IO[bytes]) -> Started | None:
        """Mark a trial as running and give it its configuration; None if another process was quicker."""
        storage, trial_id, number = self._storage, frozen._trial_id, frozen.number
        resumed = storage.get_trial(trial_id).state == TrialState.RUNNING
        try:
            if not resumed and not storage.set_trial_state_values(trial_id, TrialState.RUNNING):
                return None
            for name, value in (("directory", self._identity), ("host", socket.gethostname()), ("alive", time.time())):
                storage.set_trial_user_attr(trial_id, name, value)
        except optuna.exceptions.UpdateFinishedTrialError:
            return None
        seeds = len(self.sweep.seeds)
        known = self.sweep.points[number // seeds] if self.sweep.points is not None else None
        if number % seeds:
            known = self.trials()[number - number % seeds].params
        # A draw depends on the trial's number alone: a process that starts again draws nothing twice.
        self.study.sampler = self._sampler(number)
        distributions = {name: distribution(each) for name, each in self.sweep.searched.items()}
        if known is not None:
            present = storage.get_trial(trial_id).params
            for name, value in known.items():
                if name not in present:
                    internal = distributions[name].to_internal_repr(value)
                    storage.set_trial_param(trial_id, name, internal, distributions[name])
        trial = Trial(self.study, trial_id)
        params = {name: trial._suggest(name, each) for name, each in distributions.items()}
        seed = self.seed(number)
        trial.set_user_attr("seed", seed)
        return Started(trial, self.files(number), params, seed, lock, resumed)

    def _sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        if self.sweep.options.sampler == "tpe":
            # constant_liar: trials that are being trained count as bad, so that workers try different places.
            return optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        return optuna.samplers.RandomSampler(seed=seed)

    def _pruner(self) -> optuna.pruners.BasePruner:
        train = self.sweep.experiment.config.train
        if self.sweep.options.pruner == "median":
            return optuna.pruners.MedianPruner()
        if self.sweep.options.pruner == "hyperband":
            return optuna.pruners.HyperbandPruner(min_resource=train.evaluate_every, max_resource=train.steps)
        return optuna.pruners.NopPruner()


def distribution(dimension: Dimension) -> BaseDistribution:
    """Optuna's form of a dimension."""
    if isinstance(dimension, Choice):
        return CategoricalDistribution(dimension.values)
    if isinstance(dimension, Integer):
        return IntDistribution(dimension.low, dimension.high)
    return FloatDistribution(dimension.low, dimension.high, log=isinstance(dimension, LogUniform))


@contextlib.contextmanager
def _database_errors(url: str) -> Iterator[None]:
    """Raise what a database complains of as RunDirectoryError, in one line."""
    import sqlalchemy

    try:
        yield
    except (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.StorageInternalError, ImportError) as error:
        shown = sqlalchemy.engine.make_url(url).render_as_string(hide_password=True) if "@" in url else url
        line = next(iter(str(error.__cause__ or error).strip().splitlines()), type(error).__name__)
        raise RunDirectoryError(f"the study cannot be opened in {shown}: {line}") from error
