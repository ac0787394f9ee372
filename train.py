"""Train one experiment.

    python train.py                                        list the experiments
    python train.py dates                                  train one, or resume it
    python train.py dates --optimizer.peak_lr 1e-3         with another option (dates --help shows all)
    python train.py runs/dates/config.json                 the run that this file describes

In a notebook: `from experiments import dates; from train import train; result = train(dates.experiment())`.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jax.sharding import Mesh

    from data.loading import PairData, TextData
    from experiments.experiment import Experiment
    from inference.trained_model import TrainedModel
    from training.config import TrainConfig
    from training.loss import Batch
    from training.step import TrainState
    from workdir.result import TrainResult
    from workdir.run_directory import RunDirectory


def train(experiment: Experiment) -> TrainResult:
    """Train `experiment` in its directory, from the start or from its last checkpoint, and report.

    Evaluate, save, next batch, step, log: in this order a run may end anywhere, and the one that resumes from the last
    checkpoint is the same run. A finished run is not trained again: its result is read, unless `train.steps` has been
    raised, which trains it longer. Options that change nothing learned may be others than before.

    Raises:
      RunDirectoryError: the directory belongs to another config, or to something else, or its run began on other data.
      ValueError: an option that does not fit the data, the devices or the model; nothing has been written.
      NonFiniteError: a loss, of training or validation, a gradient or an updated state became NaN or infinite; the
        last checkpoint is finite.
      SystemExit: stopped by a signal, with all finished steps saved. The code is 143 for SIGTERM, 129 for SIGHUP (a
        closed terminal), 130 for Ctrl-C. A watchdog (`train.watchdog_minutes`) ends the process itself, with 75.
    """
    # Imported here and not above: JAX takes a second, which a list of experiments or a help text should not wait for.
    from training.sharding import data_mesh
    from workdir.changed_options import is_longer
    from workdir.digests import check_digests
    from workdir.lock import directory_lock
    from workdir.moved_data import run_record
    from workdir.result import read_result
    from workdir.run_directory import RunDirectory, open_run_directory

    mesh = data_mesh()
    check_options(experiment, mesh)
    check_digests(RunDirectory(experiment.workdir))
    record = run_record(experiment)
    run = open_run_directory(experiment.workdir, record)
    if not is_longer(run.changes(record)) and (result := read_result(experiment, run)) is not None:
        steps = experiment.config.train.steps
        print(f"{experiment.name}: {run.path} holds this run, finished after {steps:,} steps")
        return result
    with directory_lock(run.path):
        return train_and_report(experiment, run, record, mesh)


def train_and_report(experiment: Experiment, run: RunDirectory, record: dict[str, Any], mesh: Mesh) -> TrainResult:
    """Train a run that is not finished, in its open directory, on `mesh`. Raises as `train` does."""
    import jax

    from data.spec import spec_of
    from inference.trained_model import TrainedModel
    from training.compilation import compile_step
    from training.eval_step import check_metric, evaluate, make_eval_step
    from training.finite import check_finite, with_finite_flags
    from training.log import MetricLogger
    from training.progress import Progress
    from training.sharding import batch_sharding, device_put, make_global_batch, replicated
    from training.stop import PreemptionGuard
    from training.watchdog import Watchdog
    from workdir.changed_options import apply_changes
    from workdir.data_record import keep_data_record
    from workdir.data_spec import save_spec
    from workdir.digests import write_digests
    from workdir.init_from import initialize_from, open_source, source_tokenizers
    from workdir.metric_writer import MetricWriter
    from workdir.tracking import open_trackers
    from workdir.train_state import build_optimizer, config_hyperparameters, new_state, open_checkpoints

    config, settings, name = experiment.config, experiment.config.train, experiment.name
    changes = run.changes(record)
    # The data, the model, and the functions that train it.
    clock = time.perf_counter()
    source = None if run.checkpoints.exists() else open_source(experiment)
    tokenizers = run.tokenizers if run.tokenizers.exists() else source_tokenizers(source, experiment)
    data = experiment.data(config, tokenizers)
    check_data(experiment, run, data)
    spec = spec_of(data)
    model = experiment.model(config, data.vocab_sizes)
    loss = experiment.loss(config, model)
    optimizer, schedule = build_optimizer(experiment), experiment.schedule(config)
    train_step = with_finite_flags(experiment.step(config, loss, optimizer, schedule))
    train_step = jax.jit(train_step, donate_argnums=0, out_shardings=replicated(mesh))
    eval_step = make_eval_step(loss)
    batches = data.blank_batches()  # one of each shape

    with (
        PreemptionGuard() as stop,
        run.undo_on_failure(record) as begin,
        open_checkpoints(experiment, run) as checkpoints,
    ):
        # A step takes one batch, so `start` is the data's position too.
        initial = jax.jit(lambda: new_state(experiment, model, spec.input_shapes), out_shardings=replicated(mesh))
        newest = checkpoints.restore_newest(like=initial.eval_shape())
        start, state, window = (0, initial(), None) if newest is None else (*newest[:2], newest[2]["window"])
        if newest is None:
            state, notes = initialize_from(source, state, optimizer)
        else:
            state, notes = apply_changes(changes, state, schedule, config_hyperparameters(config))
        if experiment.validation_metrics is None:  # otherwise their names are known after the first evaluation only
            check_metric(settings.best_metric, jax.eval_shape(eval_step, state.params, batches[-1]))
        notes += summary(data, state, batches, settings, time.perf_counter() - clock)
        print(*(f"{name}: {line}" for line in notes), sep="\n", flush=True)

        clock = time.perf_counter()
        on_devices = [device_put(batch, batch_sharding(mesh)) for batch in batches]
        train_step = compile_step(train_step, state, on_devices)
        eval_step = compile_step(eval_step, state.params, on_devices)
        shapes = ", ".join("×".join(map(str, shape)) for shape in data.shapes)
        print(f"{name}: compiled for batches of {shapes} in {time.perf_counter() - clock:.1f} s")
        print(f"{name}: steps {start + 1:,} to {settings.steps:,} in {run.path}", flush=True)
        if stop.signal and newest is None:
            print(f"{name}: stopped by {stop.signal.name} before the first step")
            raise SystemExit(stop.exit_code)
        begin()  # until here nothing is written, so that an option that was mistyped can be corrected
        keep_data_record(run, data)
        data.save_tokenizers(run.tokenizers)
        save_spec(run, spec)
        write_digests(run)

        def validate(step: int, params: Any) -> dict[str, float]:
            held_out = (
                device_put({key: batch[key] for key in batches[0]}, batch_sharding(mesh))
                for batch in data.eval_batches("validation")
            )
            metrics = evaluate(eval_step, params, held_out)
            check_finite(metrics, f"on validation after step {step:,}")
            if experiment.validation_metrics is not None:
                trained = TrainedModel(model, params, data.tokenizers, spec)
                metrics |= experiment.validation_metrics(trained, data)
                check_metric(settings.best_metric, metrics)
            return metrics

        clock = time.perf_counter()
        train_batches = data.train_batches(settings.seed, start, jax.process_index(), jax.process_count())
        trackers = open_trackers(settings.track, run.path, record)
        with (
            MetricWriter(run.path, start, trackers) as writer,
            Progress(settings.steps, start) as progress,
            Watchdog(settings.watchdog_minutes, name, start) as watchdog,
        ):
            log = MetricLogger(writer, progress, settings.log_every, window)
            for step in range(start, settings.steps + 1):
                last, validation = step == settings.steps, None
                if last or (step > start and step % settings.evaluate_every == 0):
                    log.flush(last)
                    with progress.paused("evaluating"):
                        validation = validate(step, state.params)
                    writer.write(step, "validation", validation)
                due = last or (step > start and step % settings.save_every == 0)
                if due or stop.signal:
                    log.flush()
                    # A checkpoint saved for a signal has no metrics: an uninterrupted run would not have it.
                    checkpoints.save(step, state, {"window": log.pending}, validation if due else None)
                if stop.signal:
                    print(f"{name}: stopped by {stop.signal.name} after {step:,} steps, saved in {run.path}")
                    raise SystemExit(stop.exit_code)
                if last:
                    break
                batch = make_global_batch(next(train_batches), batch_sharding(mesh))
                state, metrics = train_step(state, batch)
                log.add(step + 1, metrics)
                watchdog.beat(step + 1)
    figures = ", ".join(f"{metric.replace('_', ' ')} {value:.4f}" for metric, value in validation.items())
    print(f"{name}: trained in {time.perf_counter() - clock:.1f} s; {figures} on validation", flush=True)
    return report(experiment, run, data, TrainedModel(model, state.params, data.tokenizers, spec), validation)


def check_options(experiment: Experiment, mesh: Mesh) -> None:
    """Check the options that need no data. Raises ValueError as the functions below, which are called here."""
    from training.directions import check_declared
    from training.sharding import check_batch_divisible
    from workdir.tracking import check_tracking

    config, pieces = experiment.config, experiment.config.train.grad_accumulation_steps
    rows = "row_multiple" if config.data.tokens_per_batch else "batch_size"
    option = f"data.{rows} / train.grad_accumulation_steps"
    check_batch_divisible(getattr(config.data, rows) // pieces, option, mesh)
    check_declared(config.train.best_metric, experiment.metrics)
    check_tracking(config.train.track)


def check_data(experiment: Experiment, run: RunDirectory, data: PairData | TextData) -> None:
    """Check that the data fit the model, and are those that the run began with.

    Raises:
      ValueError: they are of another kind, or longer than the model's positions.
      RunDirectoryError: they have changed since the run began.
    """
    from data.length_check import check_lengths
    from experiments.experiment import check_data_matches_model
    from workdir.data_record import check_data_record

    check_data_matches_model(experiment, data.vocab_sizes)
    check_lengths(experiment.config.data, experiment.config.model.max_length, data)
    check_data_record(run, data)


def summary(
    data: PairData | TextData, state: TrainState, batches: Sequence[Batch], settings: TrainConfig, seconds: float
) -> list[str]:
    """Describe a run before it is compiled: examples, padding, parameters and memory; one string for each line."""
    from training.memory_estimate import memory_line

    examples = f"{data.num_train_examples:,} training, {data.num_examples('validation'):,} validation examples"
    waste, tokens = data.padding()
    largest = max(batches, key=lambda batch: batch["labels"].size)
    classes = list(data.vocab_sizes.values())[-1]
    return [
        f"{examples}, {data.batches_per_epoch:,} batches an epoch, set up in {seconds:.1f} s",
        f"{waste:.1%} of the {tokens:,} tokens in a training batch are padding, on average",
        memory_line(state, largest, classes, settings),
    ]


def report(
    experiment: Experiment,
    run: RunDirectory,
    data: PairData | TextData,
    trained: TrainedModel,
    validation: Mapping[str, float],
) -> TrainResult:
    """Report on a trained model and its baselines, draw the training curves, write the run's result and its page.

    With train.report=False the result is the validation metrics.
    """
    import jax

    from analysis.curves import training_curves
    from experiments.reports import no_report, task_report
    from reporting.page import write_page
    from workdir.digests import write_digests
    from workdir.metric_writer import read_metrics
    from workdir.moved_data import run_record
    from workdir.result import TrainResult, save_result
    from workdir.tracking import track_result

    settings = experiment.config.train
    make_report = experiment.report or task_report(experiment.task, settings.logits_chunk)
    measured = (make_report if settings.report else no_report)(trained, data, run.figures)
    curves = run.figures / "training.png"
    training_curves(read_metrics(run.path), curves)
    metrics = {f"validation_{key}": value for key, value in validation.items()} | measured.metrics
    baselines = experiment.baselines(experiment.config) if experiment.baselines and settings.report else ()
    for baseline in baselines:
        inside = dataclasses.replace(baseline.config, workdir=str(run.path / baseline.name))
        theirs = train(dataclasses.replace(baseline, config=inside, data=experiment.data)).metrics
        for key in metrics:
            if isinstance(theirs.get(key), float):
                print(f"{key}: {experiment.name} {metrics[key]:.4f}, {baseline.name} {theirs[key]:.4f}")
        metrics |= {f"{baseline.name}_{key}": value for key, value in theirs.items()}
    figures = {"training": curves} | measured.figures
    result = TrainResult(run.path, trained.model, trained.params, metrics, figures)
    track_result(settings.track, run.path, run_record(experiment), metrics)
    save_result(run, result)
    write_digests(run)
    devices = [f"{device.device_kind} ({device.platform} {device.id})" for device in jax.devices()]
    print(f"{experiment.name}: page {write_page(run.path, figures, measured.samples, devices)}")
    return result


def main() -> None:
    """Train the experiment that the command line names."""
    from cli.terminal import fail
    from experiments.registry import parse_experiment

    program = "python train.py"
    experiment = parse_experiment(program, sys.argv[1:])
    from training.huge_pages import use_huge_pages

    use_huge_pages()
    from workdir.run_directory import RunDirectoryError

    try:
        result = train(experiment)
    except RunDirectoryError as error:
        fail(program, error)
    except (ValueError, OSError) as error:
        fail(program, error, 1)
    except KeyboardInterrupt:  # while data are read, or a report is made: otherwise train() ends by SystemExit
        fail(program, "interrupted", 130)
    for name, path in result.figures.items():
        print(f"figure: {path}  ({name})")


if __name__ == "__main__":
    from cli.terminal import run_script

    run_script(main, keep_going=True)
