"""The runs of a folder in one table.

python -m reporting.runs              those in runs/ and below
python -m reporting.runs FOLDER       those of a sweep, or anywhere
"""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path

from cli.terminal import exit_on_error, fail, log, run_script
from reporting.run_summary import RunSummary, summarize, text_table


def find_runs(folder: Path) -> list[RunSummary]:
    """Return the runs in `folder` and below, by path. One whose files are damaged is named on stderr and left out.

    Raises:
      ValueError: there is no such folder.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder")
    found = []
    for config in sorted(folder.rglob("config.json")):
        try:
            found.append(summarize(config.parent))
        except ValueError as error:
            log(f"left out: {error}")
    return found


def table(runs: list[RunSummary], folder: Path) -> str:
    """Describe each run in a line: where, what, how far, its last validation loss and the other validation metrics."""
    rows = []
    for run in runs:
        metrics = run.validation
        others = ", ".join(f"{k.replace('_', ' ')} {v:.4f}" for k, v in sorted(metrics.items()) if k != "loss")
        loss = f"{metrics['loss']:.4f}" if "loss" in metrics else ""
        changed = datetime.fromtimestamp((run.path / "config.json").stat().st_mtime)
        name = str(run.path.relative_to(folder))
        rows.append([name, run.experiment, f"{changed:%Y-%m-%d %H:%M}", run.state, loss, others])
    return text_table(["run", "experiment", "begun", "state", "loss", "other metrics on validation"], rows)


def main() -> None:
    """Print the table of the folder that the command line names."""
    program, words = "python -m reporting.runs", sys.argv[1:]
    if {"-h", "--help"} & set(words):
        print(__doc__.strip())
        return
    if len(words) > 1 or any(word.startswith("-") for word in words):
        fail(program, f"wanted at most one folder, got {' '.join(words)}")
    folder = Path(words[0] if words else "runs")
    with exit_on_error(program):
        runs = find_runs(folder)
        print(table(runs, folder) if runs else f"no runs in {folder}")


if __name__ == "__main__":
    run_script(main)
