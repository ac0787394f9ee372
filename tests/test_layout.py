"""The layout: no import runs upward, none in a circle, scripts included."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FLOORS = [
    ("model", "analysis", "cli"),
    ("decoding", "training", "data"),
    ("inference",),
    ("evaluation",),
    ("experiments",),
    ("workdir",),
    ("reporting",),
    ("train", "generate", "evaluate"),
    ("sweeps",),
    ("sweep",),
]
"""From the bottom up. A package may import those below it; and on its own floor what `BESIDE` says."""
NOT_BELOW = {("training", "analysis"), ("training", "cli"), ("decoding", "analysis"), ("decoding", "cli")}
"""Pairs of floors that have nothing to do with each other all the same."""
OUTSIDE = {"model": {"jax", "jaxtyping", "flax", "numpy"}}
FLOOR_OF = {name: number for number, names in enumerate(FLOORS) for name in names}
PACKAGES = [name for name in FLOOR_OF if (ROOT / name).is_dir()]


def files(name: str) -> list[Path]:
    return sorted((ROOT / name).rglob("*.py")) if (ROOT / name).is_dir() else [ROOT / f"{name}.py"]


def imports(path: Path) -> list[str]:
    """Every module that the file imports, wherever it does; of `from package import module` both."""
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return names


@pytest.mark.parametrize("name", FLOOR_OF)
def test_a_package_imports_only_what_lies_below(name):
    for path in files(name):
        for imported in imports(path):
            top = imported.partition(".")[0]
            if top in FLOOR_OF and top != name:
                assert FLOOR_OF[top] < FLOOR_OF[name] and (name, top) not in NOT_BELOW, f"{path} imports {imported}"
            if name in OUTSIDE and top not in OUTSIDE[name] | {name}:
                assert top in sys.stdlib_module_names, f"{path} imports {imported}"


def test_no_file_is_a_drawer_for_everything():
    for name in PACKAGES:
        assert not {path.name for path in files(name)} & {"utils.py", "common.py", "helpers.py", "misc.py"}


def test_modules_do_not_import_in_a_circle():
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for name in FLOOR_OF
        for path in files(name)
    }
    graph = {module: sorted(set(imports(path)) & set(modules) - {module}) for module, path in modules.items()}
    done: set[str] = set()

    def visit(module: str, above: tuple[str, ...]):
        assert module not in above, f"circle: {' -> '.join((*above, module))}"
        if module not in done:
            for below in graph[module]:
                visit(below, (*above, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def test_the_list_of_experiments_and_the_help_text_wait_for_no_jax():
    program = (
        "import sys; import cli.options, cli.terminal, experiments.registry, sweeps.options\n"
        "from experiments.registry import list_experiments, load_experiment\n"
        "[load_experiment(name) for name in list_experiments()]\n"
        "print({'jax', 'grain', 'tensorflow_datasets', 'orbax', 'matplotlib', 'optuna'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("name", [name for name in FLOOR_OF if name in PACKAGES])
def test_a_package_can_be_imported_alone(name):
    """Every file of it, in one fresh interpreter, the last first."""
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files(name)]
    modules = [module.removesuffix(".__init__") for module in reversed(modules)]
    program = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"
    done = subprocess.run([sys.executable, "-c", program, *modules], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_there_is_one_parser_of_command_lines():
    for path in ROOT.rglob("*.py"):
        if not any(part.startswith(".") or part == "tests" for part in path.relative_to(ROOT).parts):
            assert "argparse" not in imports(path), f"{path}: wanted is data.options"
