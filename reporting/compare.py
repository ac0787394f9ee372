"""Several runs beside each other: their curves on one axis, the options in which they differ, their results.

python -m reporting.compare RUN RUN ...
python -m reporting.compare RUN RUN --metric exact_match --output comparison.png
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.options import parse_options
from cli.suggestions import did_you_mean
from cli.terminal import exit_on_error, fail, run_script
from reporting.run_summary import RunSummary, summarize, text_table


@dataclass(frozen=True)
class CompareOptions:
    """Options of a comparison."""

    metric: str = "loss"
    """The metric that is drawn."""
    output: str = "comparison.png"
    """File of the figure."""


def differences(runs: Sequence[RunSummary]) -> dict[str, list[str]]:
    """Return option -> its value in each run, of the options in which they differ; "" where a run has none."""
    flat = [_flat(run.config) for run in runs]
    names = dict.fromkeys(name for each in flat for name in each)
    values = {name: [str(each.get(name, "")) for each in flat] for name in names}
    return {name: each for name, each in values.items() if len(set(each)) > 1}


def table(runs: Sequence[RunSummary], names: Sequence[str]) -> str:
    """Return a column for each run, a line for each differing option and for each metric of the last evaluation."""
    rows = [["state", *(run.state for run in runs)]]
    rows += [[option, *values] for option, values in differences(runs).items()]
    for metric in dict.fromkeys(metric for run in runs for metric in run.validation):
        values = [run.validation.get(metric) for run in runs]
        rows.append([f"validation {metric}", *("" if value is None else f"{value:.4f}" for value in values)])
    for metric in dict.fromkeys(metric for run in runs for metric in run.result or {}):
        values = [(run.result or {}).get(metric) for run in runs]
        if not metric.startswith("validation_") and all(isinstance(v, int | float | None) for v in values):
            rows.append([metric, *("" if value is None else f"{value:.4f}" for value in values)])
    return text_table(["", *names], rows)


def main() -> None:
    """Compare the runs that the command line names."""
    program, words = "python -m reporting.compare", sys.argv[1:]
    if {"-h", "--help"} & set(words):
        print(__doc__.strip())
        return
    count = next((number for number, word in enumerate(words) if word.startswith("--")), len(words))
    paths = [Path(word) for word in words[:count]]
    try:
        options = parse_options(words[count:], CompareOptions(), program, __doc__)
        if len(paths) < 2:
            raise ValueError("wanted two runs or more: python -m reporting.compare RUN RUN")
        runs = [summarize(path) for path in paths]
        known = {name for run in runs for row in run.rows for name in row} - {"step", "split"}
        if options.metric not in known:
            raise ValueError(f"--metric {options.metric}: no run has it{did_you_mean(options.metric, known)}")
    except ValueError as error:
        fail(program, error)
    from analysis.comparison import compare_curves

    with exit_on_error(program):
        names = _short(paths)
        print(table(runs, names))
        compare_curves(dict(zip(names, (run.rows for run in runs), strict=True)), options.metric, Path(options.output))
        print(f"figure: {options.output}")


def _short(paths: Sequence[Path]) -> list[str]:
    """The last part of each path, or the whole where two are alike."""
    names = [path.name for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]


def _flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found = {}
    for name, value in config.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return found


if __name__ == "__main__":
    run_script(main)
