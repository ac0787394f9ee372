"""Eight learning rates of one experiment: eight runs of train.py, a sweep of two processes, and one compiled program.

    python -m benchmarks.vectorized reverse
    python -m benchmarks.vectorized reverse --model.d_model 256 --model.d_ff 1024 --train.steps 200

Whole commands are timed, start-up and compilation included, on an idle machine; the seconds of the steps alone are what
the runs print. No trial makes a report.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cli.terminal import fail, run_script
from experiments.registry import parse_experiment

ROOT = Path(__file__).resolve().parent.parent
RATES = ("5e-4", "1e-3", "2e-3", "3e-3", "5e-3", "1e-2", "2e-2", "4e-2")


def main() -> None:
    """Time the three ways, and print seconds and ratios."""
    program, words = "python -m benchmarks.vectorized", sys.argv[1:]
    experiment = parse_experiment(program, words)
    steps = experiment.config.train.steps
    compare(words, steps)


def compare(words: list[str], steps: int) -> None:
    """Run the three ways, one after another, in a temporary directory."""
    grid = ["--sampler", "grid", "--space", f"optimizer.peak_lr={','.join(RATES)}"]
    with tempfile.TemporaryDirectory() as folder:
        began, single = time.perf_counter(), 0.0
        for rate in RATES:
            options = ["--optimizer.peak_lr", rate, "--train.report", "False", "--workdir", f"{folder}/{rate}"]
            out = _run(["train.py", *words, *options])
            single += float(re.search(r"trained in ([\d.]+) s", out)[1])
        seconds = {"eight runs of train.py, one after another": time.perf_counter() - began}
        for name, options in (
            ("sweep.py --workers 2", ["--workers", "2"]),
            ("sweep.py --vectorize", ["--vectorize"]),
        ):
            began = time.perf_counter()
            out = _run(["sweep.py", *words, *grid, *options, "--workdir", f"{folder}/{len(options)}{options[0]}"])
            seconds[name] = time.perf_counter() - began
    first = next(iter(seconds.values()))
    for name, each in seconds.items():
        print(f"{name}: {each:.1f} s, {first / each:.2f} times as fast")
    times = re.search(r"a step of all takes (.*): (\w+) is used", out)
    print(f"a step of all eight: {1e3 * single / steps:.1f} ms in separate runs, evaluation included; {times[1]}")


def _run(words: list[str]) -> str:
    done = subprocess.run([sys.executable, *words], cwd=ROOT, env=os.environ, capture_output=True, text=True)
    if done.returncode:
        fail("python -m benchmarks.vectorized", f"{' '.join(words)}: {done.stderr[-1000:]}", 1)
    return done.stdout


if __name__ == "__main__":
    run_script(main)
