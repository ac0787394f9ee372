"""The order of the house: no import runs upward, none in a circle."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAY_IMPORT = {
    "model": set(),
    "data": set(),
    "analysis": set(),
    "decoding": {"model"},
    "training": {"model"},
    "experiments": {"model", "data", "analysis", "decoding", "training"},
}
OUTSIDE = {"model": {"jax", "jaxtyping", "flax", "numpy"}}


def imports(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.append(node.module)
    return names


def test_there_is_one_parser_of_command_lines():
    for path in ROOT.rglob("*.py"):
        if not any(part.startswith(".") or part == "tests" for part in path.relative_to(ROOT).parts):
            assert "argparse" not in imports(path), f"{path}: wanted is cli.options"


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_what_lies_below(room):
    for path in (ROOT / room).rglob("*.py"):
        for name in imports(path):
            top = name.partition(".")[0]
            if top in MAY_IMPORT:
                # A card may start another card's run: modern_char trains the one it is compared with.
                assert top == room or top in MAY_IMPORT[room], f"{path} imports {name}"
            if room in OUTSIDE and top not in OUTSIDE[room] | {room}:
                import sys

                assert top in sys.stdlib_module_names, f"{path} imports {name}"


def test_no_room_has_a_drawer_for_everything():
    for room in MAY_IMPORT:
        assert not {path.name for path in (ROOT / room).rglob("*.py")} & {"utils.py", "common.py", "helpers.py"}


def test_modules_of_a_room_do_not_import_in_a_circle():
    for room in MAY_IMPORT:
        graph = {
            ".".join(path.relative_to(ROOT).with_suffix("").parts): [
                name for name in imports(path) if name.startswith(f"{room}.")
            ]
            for path in (ROOT / room).rglob("*.py")
        }
        done: set[str] = set()

        def visit(name: str, above: tuple[str, ...], graph=graph, done=done):
            assert name not in above, f"circle: {' -> '.join((*above, name))}"
            if name in graph and name not in done:
                for below in graph[name]:
                    visit(below, (*above, name))
                done.add(name)

        for name in graph:
            visit(name, ())
