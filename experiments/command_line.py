"""From the words of a command line to an experiment with its options applied."""

from __future__ import annotations

import dataclasses
import difflib
import sys
from pathlib import Path
from typing import Any, NoReturn

from experiments.catalogue import catalogue, load_experiment
from experiments.experiment import Config, Experiment
from experiments.saved_config import read_experiment


def parse(program: str, words: list[str]) -> Experiment:
    """The experiment that `words` name, with the options that follow.

    `words` are NAME or the path of a run's config.json, then --section.option VALUE or --section.option=VALUE. A
    yes-or-no option is given as --option, --option True or --option False. Without words the experiments are listed.

    Exits with status 0 after a list or a help text, 2 after one line about what was wrong.
    """
    if not words or words[0] in ("-h", "--help"):
        _list(program)
        sys.exit(0)
    name, options = words[0], words[1:]
    try:
        experiment, doc = read_experiment(Path(name)) if name.endswith(".json") else load_experiment(name)
        config = _apply(f"{program} {name}", doc, experiment.config, options)
    except ValueError as error:
        _fail(program, str(error))
    return dataclasses.replace(experiment, config=config)


def _apply(program: str, doc: str, config: Config, options: list[str]) -> Config:
    import tyro  # here: listing the experiments needs none of it

    words = _check_options(options, _flags(config))
    return tyro.cli(
        Config[type(config.model)], prog=program, description=doc, default=config, args=words, use_underscores=True
    )


def _check_options(options: list[str], flags: dict[str, type]) -> list[str]:
    """The same options as tyro takes them, every name known, yes-or-no ones as --section.option or --section.no_option.

    Raises:
      ValueError: an option that does not exist, or a yes-or-no option with a value that is neither.
    """
    words, rest = [], list(options)
    while rest:
        word = rest.pop(0)
        flag, has_value, value = word.partition("=")
        if not flag.startswith("--") or word == "--help":
            words.append(word)
            continue
        if flag not in flags:
            raise ValueError(f"unknown option {flag}{_near(flag, list(flags))}")
        if flags[flag] is bool:
            if not has_value:
                value = rest.pop(0) if rest and not rest[0].startswith("--") else "True"
            if value.lower() not in ("true", "false"):
                raise ValueError(f"{flag} must be True or False, got {value!r}")
            section, _, last = flag.rpartition(".")
            word = flag if value.lower() == "true" else f"{section}.no_{last}"
        words.append(word)
    return words


def _flags(config: Any, prefix: str = "--") -> dict[str, type]:
    """Every option by its full name, with the type of its value."""
    flags: dict[str, type] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            flags |= _flags(value, f"{prefix}{field.name}.")
        else:
            flags[prefix + field.name] = type(value)
    return flags


def _near(flag: str, flags: list[str]) -> str:
    """The options that a misspelt one may have meant, by full name or by last name."""
    last = flag.removeprefix("--").rpartition(".")[2]
    names = {known: known.removeprefix("--").rpartition(".")[2] for known in flags}
    near = [known for known, name in names.items() if name == last]
    near += difflib.get_close_matches(flag, flags, n=3, cutoff=0.7)
    close_names = difflib.get_close_matches(last, list(names.values()), n=3, cutoff=0.6)
    near += [known for known, name in names.items() if name in close_names]
    near = list(dict.fromkeys(near))[:3]
    return f"; perhaps you meant {' or '.join(near)}" if near else "; --help shows them all"


def _list(program: str) -> None:
    names = catalogue()
    width = max(map(len, names))
    print(
        f"usage: {program} EXPERIMENT [--section.option VALUE ...]\n\nexperiments ({program} NAME --help for options):"
    )
    for name, line in names.items():
        print(f"  {name:<{width}}  {line}")


def _fail(program: str, message: str) -> NoReturn:
    print(f"{program}: {message}", file=sys.stderr)
    sys.exit(2)
