"""Train one experiment with many hyperparameters, and compare them on the validation split.

    python sweep.py dates --trials 20 --workers 2          search the space that the experiment declares
    python sweep.py dates --trials 20 --workers 2          again: goes on where it stopped
    python sweep.py dates --report                         the trials so far
    python sweep.py dates --sampler grid --space optimizer.peak_lr=1e-3,2e-3 train.seed=0,1,2 --train.steps 500
    python sweep.py dates --help                           every option

Each trial is `train.py` in a process of its own. SWEEP, the directory, is runs/NAME-sweep; a trial's run is
SWEEP/trials/NUMBER, its log SWEEP/trials/NUMBER.log, the study SWEEP/study.db.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run, or go on with, the sweep that the command line describes.

    Exits with 0 if all trials are finished or stopped early, 1 if one has failed, 2 for a wrong request.
    """
    from cli.terminal import fail
    from experiments.registry import print_experiments
    from sweeps.options import parse_sweep

    program, words = "python sweep.py", sys.argv[1:]
    if not words or words[0] in ("-h", "--help"):
        print_experiments(program)
        return
    try:
        sweep = parse_sweep(program, words)
    except ValueError as error:
        fail(program, error)

    if sweep.options.vectorize:
        from training.huge_pages import use_huge_pages

        use_huge_pages()
    from sweeps.report import write_report
    from sweeps.study import Study
    from sweeps.trials import run_trials
    from workdir.run_directory import RunDirectoryError

    name, seeds = sweep.experiment.name, len(sweep.seeds)
    try:
        study = Study(sweep, create=not sweep.options.report)
        if not sweep.options.report:
            runs = f"{sweep.configurations} configurations × {seeds} seeds = {sweep.runs} runs"
            left = study.unfinished()
            space = " ".join(f"{option}={values}" for option, values in sweep.space.items())
            print(f"{name}: {runs if seeds > 1 else f'{sweep.runs} runs'}, {left} to do, in {sweep.directory}")
            print(f"{name}: {sweep.options.sampler} search of {space}", flush=True)
            if sweep.options.vectorize:
                from sweeps.vectorized import run_vectorized

                run_vectorized(study)
            else:
                run_trials(study, sweep.options.workers or 1)
        failed = write_report(study)
    except RunDirectoryError as error:
        fail(program, error)
    except (ValueError, OSError) as error:
        fail(program, error, 1)
    except KeyboardInterrupt:
        fail(program, "interrupted", 130)
    trials = study.trials()
    if not any(trial.value is not None for trial in trials) and not study.unfinished():
        fail(program, f"no successful trial of {len(trials)}", 1)
    if failed and not sweep.options.report:
        fail(program, f"{failed} of {len(trials)} trials failed", 1)


if __name__ == "__main__":
    from cli.terminal import run_script

    run_script(main, keep_going=True)
