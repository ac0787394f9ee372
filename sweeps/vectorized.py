"""The trials of a sweep as members of one compiled program (`sweep.py --vectorize`).

Trials that differ in their seed and in hyperparameters that enter the train state as numbers are trained together,
`--workers` at a time. Each has its own run directory all the same, with the config, curves, checkpoint and result
that `train.py` would leave, so that `generate.py` and `evaluate.py` open it. A trial that meets a NaN is marked as
failed and no longer looked at. A sweep that is stopped goes on from the checkpoint of all members in SWEEP/members/.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cli.options import with_options
from data.spec import spec_of
from experiments.experiment import Experiment
from experiments.search_space import SEED
from inference.trained_model import TrainedModel
from sweeps.study import HEARTBEAT, Started, Study
from train import check_data, report
from training.checkpoint import CheckpointManager
from training.compilation import compile_step
from training.eval_step import check_metric, make_eval_step
from training.finite import NonFiniteError, check_finite, with_finite_flags
from training.log import MetricLogger
from training.loss import Batch, Metrics
from training.members import compile_quicker, members_mesh, members_sharding, over_members, stack_hyperparameters
from training.metrics import MetricAccumulator
from training.progress import Progress
from training.sharding import replicated
from training.step import TrainState
from training.stop import PreemptionGuard
from workdir.data_record import keep_data_record
from workdir.data_spec import save_spec
from workdir.digests import write_digests
from workdir.metric_writer import MetricWriter
from workdir.moved_data import run_record
from workdir.run_directory import RunDirectory, open_run_directory
from workdir.tracking import open_trackers
from workdir.train_state import build_optimizer, config_hyperparameters, new_state, open_checkpoints


@dataclasses.dataclass
class Member:
    """A trial that is a member of the program."""

    started: Started
    experiment: Experiment
    """With the config and directory of its run."""
    run: RunDirectory
    index: int
    """Its place on the members' axis."""
    log: MetricLogger | None = None
    writer: MetricWriter | None = None
    failed: str = ""
    """Why it is no longer looked at."""


class NoProgress:
    """The progress that one member's log shows: none, since the program's shows that of all."""

    tokens_per_second = None

    def update(self, step: int, *, loss: float, tokens: int) -> None:
        """Show nothing."""


def run_vectorized(study: Study) -> None:
    """Train the study's trials, a program of `study.sweep.members` of them at a time, until none is left.

    Raises:
      ValueError: options that do not fit the data or the model.
      SystemExit: a signal; the members' state is saved. The code is 128 + the signal's number.
    """
    _a_device_for_each_core(study.sweep.members)
    program = None
    while (trials := study.take_members()) is not None:
        if program is None:
            program = Program(study)
        program.train(trials)
        for started in trials:
            started.lock.close()


def _a_device_for_each_core(members: int) -> None:
    """Have JAX treat each core as a device: operations of a small model are too short to be spread over cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(RuntimeError):  # JAX has been used, in a notebook: then with the devices that it has
        jax.config.update("jax_num_cpu_devices", min(cores, members))


class Program:
    """Data, model and compiled steps, which all generations of members share."""

    def __init__(self, study: Study):
        self.study, self.sweep = study, study.sweep
        experiment, config = self.sweep.experiment, self.sweep.experiment.config
        self.settings = config.train
        self.data = experiment.data(config, None)
        check_data(experiment, RunDirectory(self.sweep.directory), self.data)
        self.spec = spec_of(self.data)
        self.model = experiment.model(config, self.data.vocab_sizes)
        self.shared = len(self.sweep.seeds) == 1
        if not self.shared and len(self.data.shapes) > 1:
            raise ValueError(
                "--vectorize trains several seeds together where all batches have one shape: --data.buckets 1"
            )
        self.mesh = members_mesh()
        self.sharding = members_sharding(self.mesh)
        # A multiple of the devices.
        self.size = -(-self.sweep.members // self.mesh.size) * self.mesh.size
        self.train_step: Any = None
        self.eval_step: Any = None

    def train(self, trials: Sequence[Started]) -> None:
        """Train one generation, from the start or from its checkpoint, and mark its trials."""
        sweep, steps = self.sweep, self.settings.steps
        name, first = sweep.experiment.name, trials[0].files.number // sweep.members * sweep.members
        members = [self._member(started, started.files.number - first) for started in trials]
        path = sweep.directory / "members" / f"{first:04d}"
        with contextlib.ExitStack() as stack:
            stop = stack.enter_context(PreemptionGuard())
            begins = [stack.enter_context(m.run.undo_on_failure(run_record(m.experiment))) for m in members]
            checkpoints = stack.enter_context(CheckpointManager(path, keep=1))
            places = self._places(members)
            hypers = stack_hyperparameters([config_hyperparameters(each.experiment.config) for each in places])
            arguments = hypers, jnp.asarray([each.started.seed for each in places], jnp.uint32)
            make = jax.jit(jax.vmap(self._new_state), out_shardings=self.sharding)
            newest = checkpoints.restore_newest(like=make.eval_shape(*arguments))
            start, states, saved = (0, make(*arguments), None) if newest is None else newest
            self._compile(states, members)
            print(f"{name}: steps {start + 1:,} to {steps:,} of {len(members)} trials in {sweep.directory}", flush=True)
            for member, begin in zip(members, begins, strict=True):
                begin()
                keep_data_record(member.run, self.data)
                self.data.save_tokenizers(member.run.tokenizers)
                save_spec(member.run, self.spec)
                write_digests(member.run)
                window = None
                if saved is not None:
                    window, member.failed = saved["windows"][member.index], saved["failed"][member.index]
                trackers = open_trackers(self.settings.track, member.run.path, run_record(member.experiment))
                member.writer = stack.enter_context(MetricWriter(member.run.path, start, trackers))
                member.log = MetricLogger(member.writer, NoProgress(), self.settings.log_every, window)
            self._loop(members, states, start, checkpoints, stop)

    def _loop(
        self,
        members: Sequence[Member],
        states: TrainState,
        start: int,
        checkpoints: CheckpointManager,
        stop: PreemptionGuard,
    ) -> None:
        """As `train.train`: evaluate, save, next batch, step, log."""
        settings, name = self.settings, self.sweep.experiment.name
        batches, waiting, clock, validation = self._batches(members, start), [], time.monotonic(), {}
        with Progress(settings.steps, start) as progress:
            for step in range(start, settings.steps + 1):
                last = step == settings.steps
                due = last or (step > start and step % settings.save_every == 0)
                evaluated = last or (step > start and step % settings.evaluate_every == 0)
                if evaluated or due or stop.signal:
                    self._fetch(members, waiting, progress)
                elif (step - 1) % settings.log_every == 0:
                    # All but the step that was dispatched last, on which the devices are working.
                    waiting, done = waiting[-1:], waiting[:-1]
                    self._fetch(members, done, progress)
                if evaluated:
                    with progress.paused("evaluating"):
                        validation = self._validate(members, states, step)
                if due or stop.signal:
                    state = {"windows": [m.log.pending for m in members], "failed": [m.failed for m in members]}
                    checkpoints.save(step, states, state)
                if time.monotonic() - clock > HEARTBEAT:
                    clock = time.monotonic()
                    for member in members:
                        self.study.heartbeat(member.started)
                if stop.signal:
                    print(f"{name}: stopped by {stop.signal.name} after {step:,} steps; the same command goes on")
                    raise SystemExit(stop.exit_code)
                if last:
                    break
                states, metrics = self.train_step(states, next(batches))
                waiting.append((step + 1, metrics))
        for member in members:
            if member.failed:
                self.study.fail(member.started, member.failed)
            else:
                self._keep(member, states, validation[member.index])

    def _places(self, members: Sequence[Member]) -> list[Member]:
        """The member at each place of the axis; where there is none any more, or never was one, the first."""
        at = {member.index: member for member in members}
        return [at.get(index, members[0]) for index in range(self.size)]

    def _new_state(self, hyper: dict[str, Any], seed: Any) -> TrainState:
        return new_state(self.sweep.experiment, self.model, self.spec.input_shapes, hyper, seed)

    def _member(self, started: Started, index: int) -> Member:
        shared = self.sweep.experiment
        options = started.params | {SEED: started.seed, "workdir": str(started.files.run.path)}
        experiment = dataclasses.replace(shared, config=with_options(shared.config, options))
        return Member(started, experiment, open_run_directory(experiment.workdir, run_record(experiment)), index)

    def _compile(self, states: TrainState, members: Sequence[Member]) -> None:
        """Compile the step by both methods and keep the quicker one; once for all generations."""
        if self.train_step is not None:
            return
        clock, experiment = time.perf_counter(), self.sweep.experiment

        def train_step(each: Member):
            config = each.experiment.config
            loss = experiment.loss(config, self.model)
            optimizer, schedule = build_optimizer(each.experiment), experiment.schedule(config)
            return with_finite_flags(experiment.step(config, loss, optimizer, schedule))

        one_state = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), states)
        blank = self.data.blank_batches()
        programs = {
            re.sub("0x[0-9a-f]+", "", str(jax.make_jaxpr(train_step(each))(one_state, blank[0])))
            for each in (members[0], members[-1])
        }
        if len(programs) > 1:
            raise ValueError(
                f"--vectorize: the functions of {experiment.name} make another program for each trial, since they read "
                f"{' or '.join(self.sweep.searched)} from the config, and not from the hyperparameters they are given"
            )
        put = replicated(self.mesh) if self.shared else self.sharding
        stacked = blank if self.shared else [jax.tree.map(lambda x: np.stack([x] * self.size), each) for each in blank]
        batches = [jax.device_put(each, put) for each in stacked]
        steps = {
            method: jax.jit(
                over_members(train_step(members[0]), method, self.mesh, shared=self.shared), donate_argnums=0
            )
            for method in ("vmap", "map")
        }
        evaluate = make_eval_step(experiment.loss(experiment.config, self.model))
        evaluate = jax.jit(over_members(evaluate, "map", self.mesh, shared=True))
        held_out = [jax.device_put(each, replicated(self.mesh)) for each in blank]
        with ThreadPoolExecutor() as pool:
            compiled = pool.submit(compile_step, evaluate, states.params, held_out)
            method, self.train_step, seconds = compile_quicker(steps, states, batches)
            self.eval_step = compiled.result()
        times = ", ".join(f"jax.{'lax.' * (each == 'map')}{each} {1e3 * s:.1f} ms" for each, s in seconds.items())
        print(
            f"{experiment.name}: {self.size} trials are one program, compiled in {time.perf_counter() - clock:.1f} s; "
            f"a step of all takes {times}: {method} is used",
            flush=True,
        )

    def _batches(self, members: Sequence[Member], start: int) -> Iterator[Batch]:
        if self.shared:
            for batch in self.data.train_batches(members[0].started.seed, start):
                yield jax.device_put(batch, replicated(self.mesh))
        seeds = [member.started.seed for member in self._places(members)]
        streams = {seed: self.data.train_batches(seed, start) for seed in dict.fromkeys(seeds)}
        while True:
            drawn = {seed: next(stream) for seed, stream in streams.items()}
            stacked = jax.tree.map(lambda *each: np.stack(each), *(drawn[seed] for seed in seeds))
            yield jax.device_put(stacked, self.sharding)

    def _fetch(self, members: Sequence[Member], waiting: list[tuple[int, Metrics]], progress: Progress) -> None:
        """Give each member its metrics of the steps in `waiting`, and empty it."""
        if not waiting:
            return
        fetched = jax.device_get([metrics for _, metrics in waiting])
        (last, _), metrics = waiting[-1], fetched[-1]
        alive = [member for member in members if not member.failed]
        for member in alive:
            try:
                for (step, _), each in zip(waiting, fetched, strict=True):
                    member.log.add(step, _of(each, member))
                member.log.flush(last == self.settings.steps)
            except NonFiniteError as error:
                self._fail(member, error)
        losses = [float(np.divide(*_of(metrics["loss"], member))) for member in alive if not member.failed]
        tokens = sum(int(each["loss"][1].sum()) for each in fetched)
        progress.update(last, loss=min(losses, default=float("nan")), tokens=tokens)
        waiting.clear()

    def _validate(self, members: Sequence[Member], states: TrainState, step: int) -> dict[int, dict[str, float]]:
        """Return the validation metrics of each member that has not failed, by index."""
        alive = [member for member in members if not member.failed]
        totals = {member.index: MetricAccumulator() for member in alive}
        keys = self.data.blank_batches()[0].keys()
        for batch in self.data.eval_batches("validation"):
            on_device = jax.device_put({key: batch[key] for key in keys}, replicated(self.mesh))
            metrics = jax.device_get(self.eval_step(states.params, on_device))
            for member in alive:
                totals[member.index].add(_of(metrics, member))
        means = {}
        for member in alive:
            found = totals[member.index].means()
            try:
                check_finite(found, f"on validation after step {step:,}")
            except NonFiniteError as error:
                self._fail(member, error)
                continue
            if member.experiment.validation_metrics is not None:
                found |= member.experiment.validation_metrics(self._trained(member, states), self.data)
            check_metric(self.sweep.metric, found)
            member.writer.write(step, "validation", found)
            means[member.index] = found
        return means

    def _trained(self, member: Member, states: TrainState) -> TrainedModel:
        return TrainedModel(self.model, _of(states.params, member), self.data.tokenizers, self.spec)

    def _fail(self, member: Member, error: NonFiniteError) -> None:
        member.failed = str(error)
        print(f"trial {member.started.files.number:04d}: failed: {error}", flush=True)

    def _keep(self, member: Member, states: TrainState, validation: dict[str, float]) -> None:
        """Leave what `train.py` leaves: the last checkpoint, curves, figures and the result; mark the trial."""
        state = _of(states, member)
        own = config_hyperparameters(member.experiment.config)
        state = state._replace(hyperparameters={name: state.hyperparameters[name] for name in own})
        with open_checkpoints(member.experiment, member.run) as checkpoints:
            checkpoints.save(int(state.step), state, {"window": member.log.pending}, validation)
        report(member.experiment, member.run, self.data, self._trained(member, states), validation)
        value = validation[self.sweep.metric]
        self.study.complete(member.started, value)
        print(f"trial {member.started.files.number:04d}: {self.sweep.metric.replace('_', ' ')} {value:.6g}", flush=True)


def _of(tree: Any, member: Member) -> Any:
    """The member's part of a tree of stacked arrays."""
    return jax.tree.map(lambda x: x[member.index], tree)
