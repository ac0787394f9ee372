"""generate.py and evaluate.py as users run them: in a process of their own, or, for speed, in this one."""

import dataclasses
import io
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

ROOT = Path(__file__).resolve().parent.parent


class Done(NamedTuple):
    code: int
    out: str
    err: str


def in_a_process(script: str, *words: object, stdin: bytes = b"") -> Done:
    done = subprocess.run(
        [sys.executable, script, *map(str, words)], cwd=ROOT, input=stdin, capture_output=True, timeout=240
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    """A program on the CPU, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu", **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def in_this_process(monkeypatch, main, *words: object, stdin: bytes = b"", terminal: bool = False) -> Done:
    """The same by calling `main`, since a process spends seconds on importing JAX."""

    class Stdin(io.TextIOWrapper):
        def isatty(self) -> bool:
            return terminal

    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    code = 0
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", ["script.py", *map(str, words)])
        patch.setattr(sys, "stdin", Stdin(io.BytesIO(stdin), encoding="utf-8", newline="\n"))
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    return Done(code, out.buffer.getvalue().decode(), err.buffer.getvalue().decode())


def with_nan_parameters(monkeypatch) -> None:
    """Every checkpoint that a script of this process chooses holds NaN."""
    from workdir.restore import Run

    select_params = Run.select_params

    def chosen(run, checkpoint):
        found = select_params(run, checkpoint)
        params = jax.tree.map(lambda x: np.full(x.shape, np.nan, x.dtype), found.params)
        return dataclasses.replace(found, params=params)

    monkeypatch.setattr(Run, "select_params", chosen)
