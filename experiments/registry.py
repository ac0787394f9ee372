"""The experiments there are: every file here, or in a folder below, that defines `experiment()`.

They are found by reading the files, not by importing them, so that listing is quick and a broken card hides no other.
"""

from __future__ import annotations

import ast
import difflib
import importlib
from pathlib import Path

from experiments.experiment import Experiment

ROOM = Path(__file__).parent


def catalogue() -> dict[str, str]:
    """Name -> first line of the card's docstring, sorted; `claims/recall.py` is named claims.recall."""
    found = {}
    for path in sorted(ROOM.rglob("*.py")):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except SyntaxError as error:
            found[_name(path)] = f"(does not parse: line {error.lineno})"
            continue
        if any(isinstance(node, ast.FunctionDef) and node.name == "experiment" for node in tree.body):
            found[_name(path)] = (ast.get_docstring(tree) or "(no docstring)").partition("\n")[0]
    return found


def load_experiment(name: str) -> tuple[Experiment, str]:
    """The experiment of that name, and its card's docstring.

    Raises:
      ValueError: there is none; names the near ones.
    """
    names = catalogue()
    if name not in names:
        near = difflib.get_close_matches(name, names, n=3)
        hint = f"perhaps you meant {' or '.join(near)}" if near else f"there are {', '.join(names)}"
        raise ValueError(f"unknown experiment {name!r}; {hint}")
    card = importlib.import_module(f"experiments.{name}")
    return card.experiment(), card.__doc__ or ""


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOM).with_suffix("").parts)
