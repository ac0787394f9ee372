"""`SHA256SUMS` of a run: digests of the files that it is resumed and read from, so that a damaged one is noticed.

cd runs/dates && sha256sum --check SHA256SUMS
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from workdir.atomic_write import write_atomically
from workdir.run_directory import RESULT, RunDirectoryError

if TYPE_CHECKING:
    from workdir.run_directory import RunDirectory

FILE_NAME = "SHA256SUMS"
_FILES = ("config.json", "data.json", "data_spec.json", RESULT)
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")


def write_digests(run: RunDirectory) -> None:
    """Write the digests of the run's config, data record, sizes, tokenizers and, if it is finished, its result."""
    lines = [f"{_digest(path)}  {path.relative_to(run.path)}\n" for path in _files(run)]
    write_atomically(run.path / FILE_NAME, "".join(lines))


def check_digests(run: RunDirectory) -> None:
    """Compare the files with their digests; a run of an older version has none.

    Raises:
        RunDirectoryError: a file is not as it was written, or is gone, or `SHA256SUMS` itself is damaged.
    """
    path = run.path / FILE_NAME
    try:
        lines = path.read_bytes().decode().removesuffix("\n").split("\n")
    except FileNotFoundError:
        return
    except ValueError as error:
        raise RunDirectoryError(f"{path} is damaged: {error}") from error
    known: dict[str, str] = {}
    for line in lines:
        if (found := _LINE.fullmatch(line)) is None:
            raise RunDirectoryError(f"{path} is damaged: no digest and file: {line[:80]!r}")
        known[found[2]] = found[1]
    for name, digest in known.items():
        file = run.path / name
        if not file.exists() and name == RESULT:  # removed, so that the end of the run is reported anew
            continue
        if not file.exists():
            raise RunDirectoryError(f"{file} is missing, which {path} names")
        if _digest(file) != digest:
            raise RunDirectoryError(f"{file} is not as it was written: it, or {path}, was damaged or edited")


def _files(run: RunDirectory) -> list[Path]:
    named = [run.path / name for name in _FILES]
    tokenizers = run.tokenizers.rglob("*") if run.tokenizers.is_dir() else ()
    return [path for path in [*named, *sorted(tokenizers)] if path.is_file()]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
