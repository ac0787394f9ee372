"""Find experiments: by name, by a run's `config.json`, or by the words of a command line.

Every file here, or in a folder below, that defines `experiment()` is one. The files are parsed, not imported, to list
them: that is quick, and one that cannot be imported hides no other.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import json
import sys
from pathlib import Path

from cli.options import options_from_json, parse_options
from cli.suggestions import did_you_mean
from cli.terminal import fail
from experiments.experiment import Config, Experiment, with_current_names

ROOT = Path(__file__).parent


def list_experiments() -> dict[str, str]:
    """Return name -> first line of the file's docstring, sorted; `claims/recall.py` is named claims.recall."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except SyntaxError as error:
            found[name] = f"(does not parse: line {error.lineno})"
            continue
        if any(isinstance(node, ast.FunctionDef) and node.name == "experiment" for node in tree.body):
            found[name] = (ast.get_docstring(tree) or "(no docstring)").partition("\n")[0]
    return found


def load_experiment(name: str) -> tuple[Experiment, str]:
    """Return the experiment of that name and its file's docstring.

    Raises:
      ValueError: no such experiment; names similar ones.
    """
    if name not in (names := list_experiments()):
        raise ValueError(f"unknown experiment {name!r}{did_you_mean(name, names, '; there are ' + ', '.join(names))}")
    module = importlib.import_module(f"experiments.{name}")
    return module.experiment(), module.__doc__ or ""


def read_experiment(path: Path) -> tuple[Experiment, str]:
    """Return the experiment that a run's `config.json` describes, in that directory, and its file's docstring.

    Raises:
      ValueError: the file is missing or no JSON, or has a key or a value that the experiment does not take; names
        similar keys.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(record, dict) or not isinstance(record.get("experiment"), str):
        raise ValueError(f"{path} is not the config of a run: it names no experiment")
    experiment, doc = load_experiment(record.pop("experiment"))
    try:
        config = options_from_json(with_current_names(record), experiment.config)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return dataclasses.replace(experiment, config=dataclasses.replace(config, workdir=str(path.parent))), doc


def parse_experiment(program: str, words: list[str]) -> Experiment:
    """Return the experiment that `words` name, with the options that follow.

    `words` are NAME or the path of a run's config.json, then --section.option VALUE or --section.option=VALUE. A
    boolean option is given as --option, --option True or --option False. Without words the experiments are listed.

    Exits with status 0 after a list or a help text, 2 after one line about what was wrong.
    """
    if not words or words[0] in ("-h", "--help"):
        print_experiments(program)
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


def print_experiments(program: str) -> None:
    """Print the usage of `program`, and the list of experiments."""
    names = list_experiments()
    width = max(map(len, names))
    print(
        f"usage: {program} EXPERIMENT [--section.option VALUE ...]\n\nexperiments ({program} NAME --help for options):"
    )
    for name, line in names.items():
        print(f"  {name:<{width}}  {line}")
