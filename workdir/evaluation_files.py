"""Files of an evaluation, in RUN/evaluation/: one set for each combination of settings."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workdir.atomic_write import write_atomically
from workdir.run_directory import RunDirectory

DIRECTORY = "evaluation"


def make_directory(run: RunDirectory) -> None:
    """Make RUN/evaluation/. Raises OSError if it cannot be written, to be known before hours of decoding."""
    directory = run.path / DIRECTORY
    directory.mkdir(exist_ok=True)
    if not os.access(directory, os.W_OK):
        raise PermissionError(f"{directory} cannot be written to")


def save_evaluation(
    run: RunDirectory, name: str, record: Mapping[str, Any], texts: Mapping[str, Sequence[str]]
) -> dict[str, Path]:
    """Write `record` to `NAME.json` and each of `texts` to `NAME.KIND.txt`; return their paths, by kind and "metrics".

    The files of an earlier evaluation of the same name are replaced, each atomically, the JSON last.

    Args:
      name: all settings that the numbers depend on.
      record: JSON values; NaN and infinity become null.
      texts: kind -> lines; "hypotheses", "references", "sources".
    """
    directory = run.path / DIRECTORY
    directory.mkdir(exist_ok=True)
    paths = {}
    for kind, lines in texts.items():
        paths[kind] = directory / f"{name}.{kind}.txt"
        write_atomically(paths[kind], "".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))
    run.write(f"{DIRECTORY}/{name}.json", dict(record))
    return paths | {"metrics": directory / f"{name}.json"}
