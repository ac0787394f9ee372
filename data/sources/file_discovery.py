"""Discovery of the files of a user's corpus, by split and language.

PATH (of text: and tsv:) and PREFIX (of parallel:) may be

    a file                       all there is (parallel: PREFIX.en and PREFIX.de); held-out splits are drawn from it
    a directory                  its files named by split: train.tsv, kor_dev.tsv, test_2016_flickr.en.gz, ...
    what such names begin with   kor names kor_train.tsv, kor_dev.tsv and kor_test.tsv
    TRAIN+VALIDATION[+TEST]      each a file (parallel: what two files' names have in common)

A name is BEGINNING SPLIT [MORE] .EXTENSION [.gz]; SPLIT is train or training; valid, validation, val or dev; test. MORE
keeps several test sets apart: `test_2016_flickr.en` is split test_2016_flickr, `test.2016.en` is test_2016. In text: a
split may also be a directory; each file below it is a document, except those whose names begin with a dot.
"""

import os
import re
from pathlib import Path

from data.home import expand_home
from data.sources.grammar import Source

WHOLE = "whole"
"""Key of files whose names have no split in them."""

_EXTENSIONS = {"text": {"txt", "text", "tokens", "raw"}, "tsv": {"tsv", "txt", "tab"}}
_SPLIT_NAMES = {"training": "train", "valid": "validation", "val": "validation", "dev": "validation"}
_NAME = re.compile(
    r"(?P<before>(.*[._-])?)(?P<split>training|train|validation|valid|val|dev|test)(?P<more>([._-].+|[0-9]+)?)"
)
_LANGUAGE = re.compile(r"[a-z]{2,3}([_-][A-Za-z]{2,4})?")
_NOT_LANGUAGES = {"txt", "tsv", "csv", "zip", "log", "md", "py"}

Files = dict[str, tuple[Path, ...]]


def corpus_files(source: Source) -> tuple[Files, tuple[str, str] | None]:
    """Find the files of each split (or `WHOLE`), training first; parallel: two files, and the two languages.

    Raises ValueError, one line, where nothing is found, no training split is, more than one reading is possible, or
    something is not a file: a pipe, say, which can be read only once.
    """
    files, languages = _find(source)
    for path in (path for paths in files.values() for path in paths):
        _check_file(path)
    return files, languages


def _find(source: Source) -> tuple[Files, tuple[str, str] | None]:
    path = _path(source.name)
    parts = source.name.split("+")
    named = len(parts) > 1 and not path.exists()
    if named and not 2 <= len(parts) <= 3:
        raise ValueError(f"{source} names {len(parts)} splits; wanted: TRAIN+VALIDATION or TRAIN+VALIDATION+TEST")
    try:
        if source.kind == "parallel":
            if named:
                found = dict(zip(("train", "validation", "test"), (_exactly(source, _path(part)) for part in parts)))
            else:
                found = _exactly(source, path, strict=False)
                found = {WHOLE: found} if found else _by_split(source, path)
            return _two_languages(source, found)
        if named:
            files = dict(zip(("train", "validation", "test"), map(_path, parts)))
            for part in files.values():
                if not part.is_file():
                    raise ValueError(f"{source}: there is no file {part}")
            return {split: (part,) for split, part in files.items()}, None
        if not path.is_dir() and os.path.lexists(path):
            return {WHOLE: (path,)}, None
        return {split: _documents(files[""]) for split, files in _by_split(source, path).items()}, None
    except OSError as error:
        raise ValueError(f"cannot read {error.filename}: {error.strerror}") from None


def _path(name: str) -> Path:
    return Path(expand_home(name, "--data.source"))


def _exactly(source: Source, prefix: Path, strict: bool = True) -> dict[str, Path]:
    """Find the files PREFIX.LANGUAGE of parallel text: language -> file."""
    found = {}
    for file in sorted(prefix.parent.iterdir()) if prefix.parent.is_dir() and not prefix.is_dir() else ():
        base, language = _base_and_key(source, file)
        if base == prefix.name and language:
            _add(found, language, file)
    if strict and len(found) < 2:
        raise ValueError(f"{source}: there are no two files {prefix}.LANGUAGE")
    return found if len(found) > 1 else {}


def _by_split(source: Source, path: Path) -> dict[str, dict[str, Path]]:
    """Find files by split and language ("" unless parallel), in a directory or by a prefix; training first."""
    directory, prefix = (path, "") if path.is_dir() else (path.parent, path.name)
    found: dict[str, dict[str, dict[str, Path]]] = {}
    for file in sorted(directory.iterdir()) if directory.is_dir() else ():
        base, key = _base_and_key(source, file)
        if base is None or not base.startswith(prefix) or (file.is_dir() and source.kind != "text"):
            continue
        # A prefix must be followed by nothing but the split: kor is not korean_train.
        match = _NAME.fullmatch(base.removeprefix(prefix))
        if match is None or (prefix and match["before"] not in ("", ".", "_", "-")):
            continue
        name = _SPLIT_NAMES.get(match["split"], match["split"])
        more = re.sub(r"\W", "_", match["more"])
        split = name + ("" if not more or more.startswith("_") else "_") + more
        if name != "train" or not more:
            _add(found.setdefault(match["before"], {}).setdefault(split, {}), key, file)
    found = {before: splits for before, splits in found.items() if "train" in splits}
    if not found:
        extension = {"parallel": "en", "tsv": "tsv", "text": "txt"}[source.kind]
        wanted = f"{path / 'train' if path.is_dir() else f'{path}.train'}.{extension}"
        raise ValueError(
            f"{source}: {path} is no file, and no directory or beginning of files named by split; "
            f"wanted is, for example, {wanted}"
        )
    if len(found) > 1:
        raise ValueError(f"{source}: {path} has several corpora, {', '.join(map(repr, found))}: name one of them")
    (splits,) = found.values()
    return {split: splits[split] for split in sorted(splits, key=_rank)}


def _rank(split: str) -> tuple[int, str]:
    return {"train": 0, "validation": 1}.get(split, 2), split


def _base_and_key(source: Source, file: Path) -> tuple[str | None, str]:
    """Split a file's name into its stem and its language (parallel) or ""; None for a name that does not fit."""
    name = file.name.removesuffix(".gz")
    base, _, extension = name.rpartition(".")
    if source.kind != "parallel":
        return (base if extension in _EXTENSIONS[source.kind] and base else name), ""
    if source.direction:
        return (base, extension) if extension in source.direction else (None, "")
    return (base, extension) if _LANGUAGE.fullmatch(extension) and extension not in _NOT_LANGUAGES else (None, "")


def _add(found: dict[str, Path], key: str, file: Path) -> None:
    if key in found:
        raise ValueError(f"both {found[key]} and {file} could be meant: move one away, or name the files one by one")
    found[key] = file


def _two_languages(source: Source, found: dict[str, dict[str, Path]]) -> tuple[Files, tuple[str, str]]:
    languages = source.direction or tuple(sorted(next(iter(found.values()))))
    if len(languages) != 2:
        raise ValueError(
            f"{source}: the training files are in {', '.join(languages) or 'no language'}; "
            f"name two, as in parallel:{source.name}:en-de"
        )
    for files in found.values():
        for language in languages:
            if language not in files:
                raise ValueError(f"{source}: {next(iter(files.values()))} has no counterpart in {language}")
    return {split: tuple(files[language] for language in languages) for split, files in found.items()}, languages


def _documents(path: Path) -> tuple[Path, ...]:
    if not path.is_dir():
        return (path,)
    files = tuple(sorted(file for file in path.rglob("*") if not file.is_dir() and not file.name.startswith(".")))
    if not files:
        raise ValueError(f"{path} has no files")
    return files


def _check_file(path: Path) -> None:
    if not path.is_file():
        what = "a pipe or a device" if path.exists() else f"a link to {path.readlink()}, which is not there"
        raise ValueError(f"cannot read {path}: it is {what}")
