"""From the words of a command line to an experiment with its options applied."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from cli.options import parse_options
from cli.terminal import fail
from experiments.experiment import Config, Experiment
from experiments.registry import catalogue, load_experiment
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
        kind = Config[type(experiment.config.model)]
        config = parse_options(options, experiment.config, f"{program} {name}", doc, kind)
        experiment = dataclasses.replace(experiment, config=config)
        _ = experiment.workdir  # refused here, as an option, rather than where it is first used
    except ValueError as error:
        fail(program, error)
    return experiment


def _list(program: str) -> None:
    names = catalogue()
    width = max(map(len, names))
    print(
        f"usage: {program} EXPERIMENT [--section.option VALUE ...]\n\nexperiments ({program} NAME --help for options):"
    )
    for name, line in names.items():
        print(f"  {name:<{width}}  {line}")
