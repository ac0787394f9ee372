"""Score a trained run on a whole split.

    python evaluate.py runs/dates --split test
    python evaluate.py runs/multi30k --split test --beam 4 --length_penalty 0.6 --checkpoint average:5 --tokenized
    python evaluate.py runs/multi30k --data.source parallel:/new/place/multi30k:en-de    where its data have moved

Prints the numbers, and keeps them in RUN/evaluation/ with the outputs and references, which the command `sacrebleu`
scores to the same figure.
"""

from __future__ import annotations

import contextlib
import sys
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

from evaluation.tasks import TASKS, check_task
from inference.generation_config import DecodingOptions

PROGRAM = "python evaluate.py"


@dataclass(frozen=True)
class DataPlace:
    """Location of the run's data now. They must be those that it was trained with."""

    source: str = ""
    """As data.source of train.py; empty: as when the run began."""
    directory: str = ""
    """As data.directory of train.py; empty: as when the run began."""


@dataclass(frozen=True)
class EvaluateOptions(DecodingOptions):
    """Options of evaluate.py: the split, the task, and decoding."""

    split: str = "test"
    """Split to score: test, validation, train."""
    checkpoint: str = "last"
    """best, last, STEP, average:K (of the last K checkpoints) or ema (the moving average, of --train.ema)."""
    task: Literal["experiment", *TASKS] = "experiment"
    """BLEU and chrF; word and phoneme error rate; exact match alone; or the loss of text. experiment: what it says."""
    tokenized: bool = False
    """Also BLEU of the text as it is, words being what spaces separate: for papers that report tokenised BLEU."""
    group: str = "language"
    """Feature of the examples by which exact match is also counted, where they have it. Empty: none."""
    data: DataPlace = field(default_factory=DataPlace)


def main() -> None:
    """Evaluate as the command line says."""
    from cli.options import parse_run
    from cli.terminal import exit_on_error, fail, log

    default = EvaluateOptions()
    path, options = parse_run(PROGRAM, __doc__, sys.argv[1:], default)
    from inference.translator import output_length
    from workdir.data_record import check_data_record
    from workdir.evaluation_files import make_directory, save_evaluation
    from workdir.restore import load_run

    try:
        run = load_run(path)
        task = run.experiment.task if options.task == "experiment" else options.task
        check_task(task, run.is_language_model)
        kept = {name: getattr(options, name) for name in ("split", "checkpoint", "data", "task")}
        measured = replace(default, **kept)
        if run.is_language_model and options != measured:
            raise ValueError(f"{path} is a language model: its loss is measured, and nothing is decoded")
        if options.nbest > 1:
            raise ValueError("one output of each line is scored: --nbest is for generate.py")
        if not run.is_language_model:
            output_length(run.model, run.spec, options)
        chosen = run.select_params(options.checkpoint)
        config, place = run.experiment.config, {name: text for name, text in asdict(options.data).items() if text}
        config = replace(config, data=replace(config.data, **place))
        with contextlib.redirect_stdout(sys.stderr):
            loaded = run.experiment.data(config, run.directory.tokenizers)
        if not check_data_record(run.directory, loaded):
            log(f"{path} has no record of its data, being of an older version: whether they have changed is not known")
        loaded.num_examples(options.split)
        make_directory(run.directory)
    except ValueError as error:
        fail(PROGRAM, error)
    except OSError as error:
        fail(PROGRAM, error, 1)
    log(f"{path} ({run.experiment.name}): {chosen.description}")
    from evaluation.evaluate_split import evaluate_split

    names, details = [options.split, chosen.name], {"split": options.split, "checkpoint": options.checkpoint}
    group, total = "", loaded.num_examples(options.split)
    if not run.is_language_model:
        group = _group(options, default, loaded)
        names += [options.name, *([task] if task != run.experiment.task else [])]
        names += [*(["tokenized"] if options.tokenized else []), *([f"by_{group}"] if group else [])]
        details |= {"decoding": asdict(options.decoding), "task": task, "group": group or None}
    with exit_on_error(PROGRAM):
        found = evaluate_split(
            run.trained_model(chosen.params),
            loaded,
            options.split,
            task,
            options.decoding,
            group=group,
            tokenized=options.tokenized,
            logits_chunk=config.train.logits_chunk,
            progress=lambda done: _progress(done, total),
        )
        record = {"run": run.experiment.name, "parameters": chosen.description, **details}
        record |= {"metrics": found.metrics, "signatures": found.signatures}
        paths = save_evaluation(run.directory, "-".join(names), record, found.texts)
        _print(found.metrics, found.signatures)
        for kind, file in paths.items():
            log(f"{kind}: {file}")


def _group(options: EvaluateOptions, default: EvaluateOptions, loaded) -> str:
    """The default is for examples that have it; one that was asked for has to be there."""
    from data.dataset import datasets_with

    has = any(options.group in dataset.info.features for dataset in datasets_with(loaded.datasets, options.split))
    return options.group if has or options.group != default.group else ""


def _print(metrics: dict, signatures: dict[str, str]) -> None:
    for name, value in metrics.items():
        if isinstance(value, dict):
            worst = ", ".join(f"{group} {number:.1%}" for group, number in list(value.items())[:10])
            print(f"{name}: {len(value)} groups, the worst: {worst}")
        else:
            signature = f"  ({signatures[name]})" if name in signatures else ""
            print(f"{name}: {value:,}" if isinstance(value, int) else f"{name}: {value:.6g}{signature}")


def _progress(done: int, total: int) -> None:
    if sys.stderr is not None and sys.stderr.isatty():
        print(f"\r{done:,} of {total:,} decoded", end="\n" if done == total else "", file=sys.stderr)


if __name__ == "__main__":
    from cli.terminal import run_script

    run_script(main)
