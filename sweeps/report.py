"""The report of a sweep: a ranked table (terminal, Markdown, CSV), figures, and the best trial's command."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, TrialState

from analysis import sweep_figures
from analysis.sweep_figures import Point
from experiments.search_space import LogUniform
from sweeps.study import Study
from workdir.atomic_write import write_atomically

LEARNING_RATE, WIDTH = "optimizer.peak_lr", "model.d_model"
STATES = {
    TrialState.COMPLETE: "finished",
    TrialState.PRUNED: "stopped early",
    TrialState.FAIL: "failed",
    TrialState.RUNNING: "training",
    TrialState.WAITING: "waiting",
}
SHOWN = 20
"""Configurations in the terminal's table; the files have them all."""


@dataclass(frozen=True)
class Row:
    """A configuration with the trials of its seeds."""

    params: dict[str, Any]
    trials: list[FrozenTrial]

    @property
    def values(self) -> list[float]:
        """The metric of each trial that has finished."""
        return [trial.value for trial in self.trials if trial.state == TrialState.COMPLETE]

    @property
    def mean(self) -> float:
        """Mean over the seeds."""
        return float(np.mean(self.values))

    @property
    def spread(self) -> float | None:
        """Standard deviation over the seeds; None for one."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None


def ranked(study: Study) -> list[Row]:
    """Return the configurations of which a trial has finished, the best first."""
    seeds, trials = len(study.sweep.seeds), study.trials()
    groups = [trials[start : start + seeds] for start in range(0, len(trials), seeds)]
    rows = [Row(dict(group[0].params), group) for group in groups]
    rows = [row for row in rows if row.values]
    return sorted(rows, key=lambda row: -row.mean if study.sweep.maximize else row.mean)


def write_report(study: Study) -> int:
    """Print and write the report; return the number of trials that have failed.

    Files: report.md, trials.csv and figures/*.png in the sweep's directory.
    """
    rows, trials, sweep = ranked(study), study.trials(), study.sweep
    metric = f"{'highest' if sweep.maximize else 'lowest'} validation {sweep.metric.replace('_', ' ')}"
    counts = {text: sum(trial.state == state for trial in trials) for state, text in STATES.items()}
    summary = f"{len(trials)} trials: " + ", ".join(f"{count} {text}" for text, count in counts.items() if count)
    table = [_cells(study, rank, row) for rank, row in enumerate(rows, start=1)]
    header = ["rank", *sweep.searched, sweep.metric, "trials"]
    failed = [trial for trial in trials if trial.state == TrialState.FAIL]
    failures = [f"trial {trial.number:04d} ({_params(trial.params)}): {trial.user_attrs['reason']}" for trial in failed]
    commands = _commands(study, rows[0]) if rows else []
    figures = draw(study)

    print(f"{sweep.experiment.name}: {summary}")
    if rows:
        print(_text_table(header, table[:SHOWN]))
        if len(table) > SHOWN:
            print(f"... and {len(table) - SHOWN} more in {sweep.directory / 'report.md'}")
    for line in failures:
        print(f"failed: {line}")
    if commands:
        print(f"best ({metric}):")
        for line in commands:
            print(f"  {line}")
    write_atomically(sweep.directory / "trials.csv", _csv(study, trials))
    lines = [f"# Sweep of {sweep.experiment.name}", "", f"{summary}. The best is that of the {metric}.", ""]
    if rows:
        lines += [_markdown(header), _markdown(["---"] * len(header)), *map(_markdown, table), ""]
    else:
        lines += ["No successful trial.", ""]
    lines += [f"- {line}" for line in failures] + ([""] if failures else [])
    if commands:
        lines += ["The best trial again with its report, and its scores on the test split:", ""]
        lines += ["```bash", *commands, "```", ""]
    lines += [f"![{path.stem}](figures/{path.name})\n" for path in figures]
    write_atomically(sweep.directory / "report.md", "\n".join(lines))
    for path in (sweep.directory / "report.md", sweep.directory / "trials.csv", *figures):
        print(f"report: {path}")
    return counts["failed"]


def draw(study: Study) -> list[Path]:
    """Draw the figures for which there is anything to show; return their paths."""
    sweep, folder = study.sweep, study.sweep.directory / "figures"
    points = [
        Point(trial.number, trial.params, None if failed else value, trial.state == TrialState.PRUNED)
        for trial in study.trials()
        if trial.state.is_finished()
        for value in [trial.value]
        for failed in [trial.state == TrialState.FAIL or trial.value is None]
    ]
    whole = [point for point in points if set(point.params) == set(sweep.searched)]
    metric = f"validation {sweep.metric.replace('_', ' ')}" + (" (nats per token)" if sweep.metric == "loss" else "")
    paths = []
    if points:
        paths.append(folder / "history.png")
        sweep_figures.history(points, metric, sweep.maximize, paths[-1])
    if not any(point.value is not None for point in whole) or not sweep.searched:
        return paths
    logarithmic = [name for name, each in sweep.searched.items() if isinstance(each, LogUniform)]
    if LEARNING_RATE in sweep.searched:
        logarithmic.append(LEARNING_RATE)
    paths.append(folder / "parameters.png")
    sweep_figures.parameters(whole, metric, logarithmic, paths[-1], names=list(sweep.searched))
    if shares := _importances(study):
        paths.append(folder / "importances.png")
        sweep_figures.importances(shares, metric, paths[-1])
    if LEARNING_RATE in sweep.searched:
        paths.append(folder / "learning_rate.png")
        curves: dict[str, dict[float, list[float]]] = {}
        for point in whole:
            if point.value is not None and not point.pruned:
                label = f"{WIDTH} {point.params.get(WIDTH, sweep.experiment.config.model.d_model)}"
                curves.setdefault(label, {}).setdefault(point.params[LEARNING_RATE], []).append(point.value)
        sweep_figures.learning_rate_curves(
            dict(sorted(curves.items(), key=lambda item: int(item[0].split()[-1]))), metric, LEARNING_RATE, paths[-1]
        )
    return paths


def _importances(study: Study) -> dict[str, float]:
    """Importance of each parameter by PED-ANOVA (Watanabe et al. 2023); {} while there are too few trials."""
    finished = [trial for trial in study.trials() if trial.state == TrialState.COMPLETE]
    different = {name for name in study.sweep.searched if len({str(trial.params[name]) for trial in finished}) > 1}
    if len(finished) < 4 or len(different) < 2 or len({trial.value for trial in finished}) < 2:
        return {}
    return get_param_importances(study.study, evaluator=PedAnovaImportanceEvaluator())


def _commands(study: Study, row: Row) -> list[str]:
    sweep = study.sweep
    finished = [trial for trial in row.trials if trial.state == TrialState.COMPLETE]
    best = (max if sweep.maximize else min)(finished, key=lambda trial: trial.value)
    words = sweep.words(best.params, study.seed(best.number), report=True)
    return [
        shlex.join(["python", "train.py", *words, "--workdir", str(sweep.directory / "best")]),
        shlex.join(["python", "evaluate.py", str(study.files(best.number).run.path), "--split", "test"]),
    ]


def _cells(study: Study, rank: int, row: Row) -> list[str]:
    value = f"{row.mean:.4f}" + (f" ± {row.spread:.4f}" if row.spread is not None else "")
    if len(row.values) < len(study.sweep.seeds):
        value += f" ({len(row.values)} of {len(study.sweep.seeds)} seeds)"
    numbers = ", ".join(f"{trial.number:04d}" for trial in row.trials)
    return [str(rank), *(_shown(row.params[name]) for name in study.sweep.searched), value, numbers]


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _params(params: dict[str, Any]) -> str:
    return ", ".join(f"{name}={_shown(value)}" for name, value in params.items())


def _text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [header, *rows]
    )


def _markdown(cells: Sequence[str]) -> str:
    escaped = [cell.replace("|", "\\|") for cell in cells]
    return f"| {' | '.join(escaped)} |"


def _csv(study: Study, trials: Sequence[FrozenTrial]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    metric, searched = study.sweep.metric, list(study.sweep.searched)
    writer.writerow(["trial", "state", *searched, "train.seed", metric, "seconds", "host", "reason", "directory"])
    for trial in trials:
        attrs = trial.user_attrs
        values = [trial.params.get(name, "") for name in searched]
        value = "" if trial.value is None else repr(trial.value)
        rest = [attrs.get(name, "") for name in ("seconds", "host", "reason")]
        directory = study.files(trial.number).name
        writer.writerow([trial.number, STATES[trial.state], *values, study.seed(trial.number), value, *rest, directory])
    return out.getvalue()
