"""Train one experiment.

    python train.py                                        list the experiments
    python train.py dates                                  train one, or go on where it stopped
    python train.py dates --optimizer.peak_lr 1e-3         with another option (dates --help shows all)
    python train.py runs/dates/config.json                 the run that this file describes

In a notebook: `from experiments import dates; from train import train; result = train(dates.experiment())`.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.experiment import Experiment
    from workdir.result import TrainResult


def train(experiment: Experiment) -> TrainResult:
    """Train `experiment` in its directory, from the start or from its last checkpoint, and report.

    Evaluate, save, next batch, step, log: in this order a run may end anywhere, and the one that goes on from the last
    checkpoint is the same run. A finished run is not trained again: its result is read.

    Raises:
      RunDirectoryError: the directory belongs to another config, or to something else, or its run began on other data.
      ValueError: an option that cannot be; nothing has been written.
      NonFiniteError: a loss, of training or validation, a gradient or an updated state became NaN or infinite; the
        last checkpoint is finite.
      SystemExit: a signal asked to stop, and all that was done is saved. The code is 143 for SIGTERM, 129 for SIGHUP
        (a closed terminal), 130 for Ctrl-C.
    """
    # Imported here and not above: JAX takes a second, and a list of experiments or a help text should not.
    import jax

    from analysis.curves import training_curves
    from data.length_check import check_lengths
    from data.spec import spec_of
    from experiments.experiment import check_data_matches_model
    from experiments.reports import task_report
    from inference.trained_model import TrainedModel
    from training.compilation import compile_step
    from training.directions import check_declared
    from training.ema import averaged
    from training.eval_step import check_metric, evaluate, make_eval_step
    from training.finite import check_finite, with_finite_flags
    from training.log import MetricLogger
    from training.memory_estimate import memory_line
    from training.metrics import MetricWriter, read_metrics
    from training.progress import Progress
    from training.sharding import (
        batch_sharding,
        check_batch_divisible,
        data_mesh,
        device_put,
        make_global_batch,
        replicated,
    )
    from training.stop import PreemptionGuard
    from workdir.data_record import check_data_record, keep_data_record
    from workdir.data_spec import save_spec
    from workdir.moved_data import run_record
    from workdir.result import TrainResult, new_state, open_checkpoints, read_result, save_result
    from workdir.run_directory import open_run

    config, settings, name = experiment.config, experiment.config.train, experiment.name
    mesh = data_mesh()
    rows = "row_multiple" if config.data.tokens_per_batch else "batch_size"
    check_batch_divisible(
        getattr(config.data, rows) // settings.grad_accumulation_steps,
        f"data.{rows} / train.grad_accumulation_steps",
        mesh,
    )
    check_declared(settings.best_metric, experiment.metrics)
    record = run_record(experiment)
    run = open_run(experiment.workdir, record)
    if (result := read_result(experiment, run)) is not None:
        print(f"{name}: {run.path} holds this run, finished after {settings.steps:,} steps")
        return result

    # The data, the model, and the functions that make it learn.
    clock = time.perf_counter()
    data = experiment.data(config, run.tokenizers if run.tokenizers.exists() else None)
    check_data_matches_model(experiment, data.vocab_sizes)
    check_lengths(config.data, config.model.max_length, data)
    check_data_record(run, data)
    held_out, epoch = data.num_examples("validation"), data.batches_per_epoch
    model = experiment.model(config, data.vocab_sizes)
    loss = experiment.loss(config, model)
    optimizer, schedule = averaged(experiment.optimizer(config)), experiment.schedule(config)
    step_function, evaluation = experiment.step(config, loss, optimizer, schedule), make_eval_step(loss)
    blank_batches = data.blank_batches()
    largest = max(blank_batches, key=lambda batch: batch["labels"].size)
    spec = spec_of(data)

    def trained(params: Any) -> TrainedModel:
        return TrainedModel(model, params, data.tokenizers, spec)

    with PreemptionGuard() as stop, run.beginning(record) as begin, open_checkpoints(experiment, run) as checkpoints:
        # The state: new, or as the last checkpoint left it; and how many batches it has seen.
        initial = jax.jit(lambda: new_state(experiment, model, spec.input_shapes), out_shardings=replicated(mesh))
        start, position, window = 0, 0, None
        if (newest := checkpoints.restore_newest(like=initial.eval_shape())) is not None:
            start, state, saved = newest
            position, window = saved["position"], saved["window"]
        else:
            state = initial()
        if experiment.validation_metrics is None:  # else nobody knows before they have been measured
            check_metric(settings.best_metric, jax.eval_shape(evaluation, state.params, largest))
        batches = data.train_batches(settings.seed, position, jax.process_index(), jax.process_count())
        counts = f"{data.num_train_examples:,} training, {held_out:,} validation examples, {epoch:,} batches an epoch"
        print(f"{name}: {counts}, set up in {time.perf_counter() - clock:.1f} s")
        waste, tokens = data.padding()
        print(f"{name}: {waste:.1%} of the {tokens:,} tokens in a training batch are padding, on average")
        classes = list(data.vocab_sizes.values())[-1]
        print(f"{name}: {memory_line(state, largest, classes, settings)}", flush=True)

        clock = time.perf_counter()
        blanks = [device_put(batch, batch_sharding(mesh)) for batch in blank_batches]
        jitted = jax.jit(with_finite_flags(step_function), donate_argnums=0, out_shardings=replicated(mesh))
        train_step = compile_step(jitted, state, blanks)
        eval_step = compile_step(evaluation, state.params, blanks)
        shapes = ", ".join("×".join(map(str, shape)) for shape in data.shapes)
        print(f"{name}: compiled for batches of {shapes} in {time.perf_counter() - clock:.1f} s")
        print(f"{name}: steps {start + 1:,} to {settings.steps:,} in {run.path}", flush=True)

        # Nothing has been written so far, and who stops here, or mistyped an option, has not begun.
        if stop.signal and newest is None:
            print(f"{name}: stopped by {stop.signal.name} before the first step")
            raise SystemExit(stop.exit_code)
        begin()
        keep_data_record(run, data)
        data.save_tokenizers(run.tokenizers)
        save_spec(run, spec)

        clock = time.perf_counter()
        with MetricWriter(run.path, start) as writer, Progress(settings.steps, start) as progress:
            log = MetricLogger(writer, progress, settings.log_every, window)
            for step in range(start, settings.steps + 1):
                last, validation = step == settings.steps, None
                if last or (step > start and step % settings.evaluate_every == 0):
                    log.flush(last)
                    with progress.paused("evaluating"):
                        rows = data.eval_batches("validation")
                        rows = (
                            device_put({key: batch[key] for key in blanks[0]}, batch_sharding(mesh)) for batch in rows
                        )
                        validation = evaluate(eval_step, state.params, rows)
                        check_finite(validation, f"on validation after step {step:,}")
                        if experiment.validation_metrics is not None:
                            validation |= experiment.validation_metrics(trained(state.params), data)
                            check_metric(settings.best_metric, validation)
                    writer.write(step, "validation", validation)
                regular = last or (step > start and step % settings.save_every == 0)
                if regular or stop.signal:
                    log.flush()
                    # What a signal saves is never the best one: the run in one piece would not have it.
                    position_and_window = {"position": position, "window": log.pending}
                    checkpoints.save(step, state, position_and_window, validation if regular else None)
                if stop.signal:
                    print(f"{name}: stopped by {stop.signal.name} after {step:,} steps, saved in {run.path}")
                    raise SystemExit(stop.exit_code)
                if last:
                    break
                batch = make_global_batch(next(batches), batch_sharding(mesh))
                position += 1
                state, metrics = train_step(state, batch)
                log.add(step + 1, metrics)
    print(f"{name}: trained in {time.perf_counter() - clock:.1f} s; {_in_words(validation)} on validation", flush=True)

    make_report = experiment.report or task_report(experiment.task, settings.logits_chunk)
    report = make_report(trained(state.params), data, run.figures)
    curves = run.figures / "training.png"
    training_curves(read_metrics(run.path), curves)
    metrics = {f"validation_{key}": value for key, value in validation.items()} | report.metrics
    for baseline in experiment.baselines(config) if experiment.baselines else ():
        inside = dataclasses.replace(baseline.config, workdir=str(run.path / baseline.name))
        theirs = train(dataclasses.replace(baseline, config=inside, data=experiment.data)).metrics
        print(
            *(
                f"{key}: {name} {metrics[key]:.4f}, {baseline.name} {theirs[key]:.4f}"
                for key in metrics
                if key in theirs and isinstance(theirs[key], float)
            ),
            sep="\n",
        )
        metrics |= {f"{baseline.name}_{key}": value for key, value in theirs.items()}
    result = TrainResult(run.path, model, state.params, metrics, {"training": curves} | report.figures)
    save_result(run, result)
    return result


def _in_words(means: dict[str, float]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in means.items())


def main() -> None:
    """The command line."""
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
