"""What a run's data were when it began, kept as `data.json`: a run does not go on, nor is it scored, on other data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from data.mixture import parse_mixture
from data.sources.grammar import parse_source
from workdir.run_directory import RunDirectoryError

if TYPE_CHECKING:
    from data.loading import PairData, TextData
    from workdir.run_directory import RunDirectory

FILE_NAME = "data.json"


def keep_data_record(run: RunDirectory, data: PairData | TextData) -> None:
    """Write `data.json` where there is none, or else hold it against `data`. Raises as `check_data_record`."""
    if not check_data_record(run, data):
        run.write(FILE_NAME, {"sources": data.fingerprints})


def check_data_record(run: RunDirectory, data: PairData | TextData) -> bool:
    """Whether the run has a `data.json`, which says the same of each split as `data`.

    A split that was not there when the run began, another test set beside the others, is no change. Nor is another
    name of a source, since files may be moved: the sources are then those of the run's config, in its order.

    Raises:
      RunDirectoryError: the data are not those that the run began with; names the source, the split and what to do.
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
    """What each of the run's sources is called now. The order is the config's, since `data.json` does not keep it."""
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
    """In words; empty if there is none."""
    if now is None:
        return f"its {before['examples']:,} examples are gone"
    if now["examples"] != before["examples"]:
        return f"{before['examples']:,} examples then, {now['examples']:,} now"
    return "" if now == before else "as many examples, but other texts"
