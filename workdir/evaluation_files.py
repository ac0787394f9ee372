"""Where an evaluation is kept: RUN/evaluation/, one set of files for each combination of settings."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workdir.atomic_write import write_atomically
from workdir.run_directory import RunDirectory

FOLDER = "evaluation"


def make_folder(run: RunDirectory) -> None:
    """Before hours of decoding. Raises OSError if nothing can be written there."""
    folder = run.path / FOLDER
    folder.mkdir(exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{folder} cannot be written to")


def save_evaluation(
    run: RunDirectory, name: str, record: Mapping[str, Any], texts: Mapping[str, Sequence[str]]
) -> dict[str, Path]:
    """Write `NAME.json` and a text file, `NAME.KIND.txt`, for each of `texts`; return their paths.

    The name says all that the numbers depend on, so the same evaluation rewrites its own files, each whole or not at
    all, and no other's. The JSON comes last: where it is, the texts are.
    """
    folder = run.path / FOLDER
    folder.mkdir(exist_ok=True)
    paths = {}
    for kind, lines in texts.items():
        paths[kind] = folder / f"{name}.{kind}.txt"
        write_atomically(paths[kind], "".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))
    run.write(f"{FOLDER}/{name}.json", dict(record))
    return paths | {"metrics": folder / f"{name}.json"}
