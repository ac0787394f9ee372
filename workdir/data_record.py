"""Fingerprints of a run's data, kept as `data.json`: it is neither resumed nor evaluated on other data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from data.sources.grammar import parse_mixture, parse_source
from workdir.run_directory import RunDirectoryError

if TYPE_CHECKING:
    from data.loading import PairData, TextData
    from workdir.run_directory import RunDirectory

FILE_NAME = "data.json"


def keep_data_record(run: RunDirectory, data: PairData | TextData) -> None:
    """Write `data.json` unless the run has one; then compare it with `data`. Raises as `check_data_record`."""
    if not check_data_record(run, data):
        run.write(FILE_NAME, {"sources": data.fingerprints})


def check_data_record(run: RunDirectory, data: PairData | TextData) -> bool:
    """Compare `data` with the run's `data.json`; return whether it has one.

    A split that was added since the run began, such as another test set, is no change. Nor is another name of a source,
    since files may be moved: the sources are then matched by their order in the run's config.

    Raises:
      RunDirectoryError: the data have changed since the run began; names the source, the split and what to do.
    """
    path = run.path / FILE_NAME
    if not path.exists():
        return False
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))["sources"]
        names = _names_now(run, list(saved), list(data.fingerprints))
        changes = [
            (source, split, change)
            for source, splits in saved.items()
            for split, before in splits.items()
            if (change := _change(before, data.fingerprints.get(names.get(source), {}).get(split)))
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunDirectoryError(f"{path} is damaged: choose another --workdir") from error
    for source, split, change in changes:
        now = names.get(source, source)
        what = "has changed since this run began" if now == source else f"is what this run began with, and {now} is not"
        raise RunDirectoryError(
            f"{run.path}: {source} {what} ({split}: {change}); bring the old data back, or train anew in another "
            "--workdir"
        )
    return True


def _names_now(run: RunDirectory, then: list[str], now: list[str]) -> dict[str, str]:
    """Map the names in `data.json` to today's, in the order of the config: `data.json` is sorted by name."""
    if set(then) != set(now):
        try:
            mixture = json.loads(run.config.read_text(encoding="utf-8"))["data"]["source"]
        except OSError:
            mixture = ""
        names = [str(parse_source(name)) for name, _ in parse_mixture(mixture)]
        if set(names) == set(then) and len(names) == len(now):
            return dict(zip(names, now))
    return {source: source for source in then}


def _change(before: Mapping[str, Any], now: Mapping[str, Any] | None) -> str:
    """Describe how a split has changed; empty if it has not."""
    if now is None:
        return f"its {before['examples']:,} examples are gone"
    if now["examples"] != before["examples"]:
        return f"{before['examples']:,} examples then, {now['examples']:,} now"
    return "" if now == before else "as many examples, but other texts"
