"""README, CONTRIBUTING and docs/: every command and snippet works, and every link, file and test they name exists.

Commands are in `bash` blocks, snippets in `python` blocks; the snippets of a document share their names. A command is
read by the script's own parser, and run by a slow test, made small by `SMALL`, in a folder that has the files it names.
"""

import ast
import dataclasses
import importlib
import importlib.metadata
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

FIRST_WORK = {
    "train": ["train.train"],
    "sweep": ["sweeps.study.Study"],
    "generate": ["workdir.restore.load_run"],
    "evaluate": ["workdir.restore.load_run"],
    "data.prepare": ["data.prepare.prepare", "data.sources.tfds_datasets.prepare_tfds"],
    "data.inspect": ["data.inspect.inspect"],
    "benchmarks.input": ["data.loading.load"],
    "benchmarks.decoding": ["benchmarks.decoding.LanguageModel"],
    "reporting.runs": ["reporting.runs.find_runs"],
    "reporting.compare": ["reporting.compare.summarize"],
    "reporting.attention": ["workdir.restore.load_run"],
    "benchmarks.vectorized": ["benchmarks.vectorized.compare"],
}
"""Module of a script -> what its `main` calls when its words have been read."""

SMALL = {
    "train": "--train.steps 2 --train.evaluate_every 2 --train.save_every 2 --model.d_model 16 --model.d_ff 16 "
    "--data.buckets 1",
    "sweep": "--trials 1 --train.steps 2 --train.evaluate_every 2 --model.d_model 16 --model.d_ff 16 --data.buckets 1",
    "benchmarks.input": "--seconds 0.1 --layers 1",
    "benchmarks.decoding": "--batch 1 --prompt 4 --tokens 2 --repeats 1 --uncached_tokens 1",
}
"""Module of a script -> options that are added when it is run."""

NOT_RUN = {
    "make ": "this suite, and set-up",
    "pip install ": "downloads",
    ".venv/bin/pip install ": "downloads",
    "python -m data.prepare tfds:": "takes TensorFlow and a network",
    "python train.py wmt14_": "takes data that are not here",
    "python -m benchmarks.vectorized ": "takes six minutes",
}
"""How commands begin that are read and not run, and why."""

NO_FILES = {"experiments/mine.py", "utils.py"}
"""Named in the docs as what may be, or must not."""


class Block(NamedTuple):
    path: Path
    line: int
    language: str
    text: str


def blocks(path: Path) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)
    return [Block(path, text.count("\n", 0, m.start()) + 2, m[1], m[2]) for m in found]


def inline_code(path: Path) -> list[str]:
    prose = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose)]


def commands(path: Path) -> list[str]:
    """The lines of the `bash` blocks, without comments."""
    lines = [line for block in blocks(path) if block.language == "bash" for line in block.text.splitlines()]
    return [line for line in (re.sub(r"(^|\s+)#.*", "", line) for line in lines) if line]


def in_prose(path: Path) -> list[str]:
    return [code for code in inline_code(path) if code.startswith(("python ", "make "))]


def script_and_words(command: str) -> tuple[str, list[str]]:
    """Module and arguments of a `python` command; where its input and output go is the shell's affair."""
    words = shlex.split(re.sub(r"\s[<>]\s*\S+", "", command))
    return (words[2], words[3:]) if words[1] == "-m" else (words[1].removesuffix(".py"), words[2:])


def names(path: Path) -> str:
    return str(path.relative_to(ROOT))


each_document = pytest.mark.parametrize("path", DOCS, ids=names)


class Parsed(Exception):
    """The words have been read, and the work would begin."""


def all_commands() -> list:
    found = {command: path for path in DOCS for command in (*commands(path), *in_prose(path))}
    return [pytest.param(command, id=f"{names(path)}: {command}") for command, path in found.items()]


@pytest.mark.parametrize("command", all_commands())
def test_a_command_is_understood(command, tmp_path, monkeypatch, capsys):
    words = shlex.split(command)
    if words[0] == "make":
        subprocess.run(["make", "--dry-run", *words[1:]], cwd=ROOT, check=True, capture_output=True)
    elif words[0].endswith("pip"):
        check_requirement(words[-1])
    else:
        monkeypatch.chdir(tmp_path)
        Path("runs/dates").mkdir(parents=True)
        Path("runs/dates/config.json").write_text('{"experiment": "dates"}')
        read_words(*script_and_words(command), monkeypatch, capsys)


def test_another_option_is_not_understood(monkeypatch, capsys):
    """A test that takes anything would be none."""
    for script in FIRST_WORK:
        if script == "reporting.runs":
            continue  # which has no options
        runs = {"reporting.compare": ["runs/a", "runs/b"], "generate": ["runs/x"], "evaluate": ["runs/x"]}
        words = runs.get(script, ["dates", "text"] if script == "reporting.attention" else ["dates"])
        words = [] if script == "benchmarks.decoding" else words
        with pytest.raises(AssertionError):
            read_words(script, [*words, "--no_such_option", "1"], monkeypatch, capsys)


def read_words(script: str, words: list[str], monkeypatch, capsys) -> None:
    """Call the script's `main` up to where its work begins."""

    def stop(*args, **kwargs):
        raise Parsed

    module = importlib.import_module(script)
    with monkeypatch.context() as patch:
        patch.setattr("training.huge_pages.use_huge_pages", lambda: None)  # would start the interpreter again
        for name in FIRST_WORK[script]:
            patch.setattr(name, stop)
        patch.setattr(sys, "argv", [script, *words])
        with pytest.raises((Parsed, SystemExit)) as end:
            module.main()
    assert end.type is Parsed or not end.value.code, capsys.readouterr().err


def check_requirement(text: str) -> None:
    """`NAME[EXTRA]` or `.[EXTRA]` names an extra that there is."""
    name, extra = re.fullmatch(r"([\w.]+)\[(\w+)\]", text).groups()
    if name == ".":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    else:
        extras = importlib.metadata.metadata(name).get_all("Provides-Extra")
    assert extra in extras


@each_document
def test_options_in_prose_exist(path):
    from data.inspect import Inspection
    from evaluate import EvaluateOptions
    from experiments.registry import load_experiment
    from generate import GenerateOptions
    from reporting.compare import CompareOptions
    from sweeps.options import SweepOptions

    def options(config: object, prefix: str = "--") -> set[str]:
        found = set()
        for field in dataclasses.fields(config):
            value = getattr(config, field.name, None)
            is_section = dataclasses.is_dataclass(value)
            found |= options(value, f"{prefix}{field.name}.") if is_section else {prefix + field.name}
        return found

    pairs, text = (load_experiment(name)[0].config for name in ("dates", "stdlib_char"))
    known = options(pairs) | options(text) | options(GenerateOptions()) | options(EvaluateOptions())
    known |= options(SweepOptions()) | options(CompareOptions())
    known |= options(Inspection(pairs.data)) | {"--help", "--data.*"}
    named = {option for code in inline_code(path) for option in re.findall(r"(?<!\S)--[\w.*]+", code)}
    assert named <= known


@each_document
def test_snippets_run(path, tmp_path, monkeypatch):
    import train

    real = train.train
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train, "train", lambda experiment: real(smaller(experiment)))
    namespace = {"__name__": "snippet"}
    for block in blocks(path):
        if block.language == "python":
            code = compile("\n" * (block.line - 1) + block.text, path, "exec")
            exec(code, namespace)
            if "experiment" in namespace and "def experiment" in block.text:
                assert ast.get_docstring(ast.parse(block.text))
                written = namespace["experiment"]()
                assert written.model(written.config, {"text": 10}) is not None
                assert f"python train.py {written.name}" in block.text


def smaller(experiment):
    """Two steps of a narrow model, in a folder below this one."""
    config = experiment.config
    model = dataclasses.replace(config.model, d_model=16, d_ff=16)
    settings = dataclasses.replace(config.train, steps=2, evaluate_every=2, save_every=2)
    return dataclasses.replace(experiment, config=dataclasses.replace(config, model=model, train=settings))


@each_document
def test_blocks_say_what_they_are(path):
    """Else a command in one of them would be neither read nor run."""
    assert {block.language for block in blocks(path)} <= {"bash", "python", "text"}


@each_document
def test_links_and_files_exist(path):
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert "://" in target or (path.parent / target).exists(), target
    for code in inline_code(path):
        if re.fullmatch(r"[\w.]+(/[\w.]+)+\.(py|md)", code) or code in NO_FILES:
            assert (ROOT / code).exists() != (code in NO_FILES), code


def test_the_tests_that_are_named_exist():
    """In docs/design.md each guarantee has at least one."""
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    items = re.findall(r"^- .*?(?=^- |^\S|^$)", text, re.M | re.S)
    assert len(items) > 40
    for item in items:
        tests = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", item)
        assert tests, item
        for file, name in tests:
            tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
            assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, f"{file}::{name}"


def test_the_experiments_are_all_there():
    from experiments.registry import list_experiments

    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8"), re.M)
    assert sorted(rows) == list(list_experiments())


def test_the_numbers_are_those_of_the_experiments():
    """Of README and docs/experiments.md: each is in the experiment's docstring and in docs/results.md."""
    results = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    rows = {}
    for path, column in ((ROOT / "README.md", 3), (ROOT / "docs" / "experiments.md", 4)):
        for line in path.read_text(encoding="utf-8").splitlines():
            cells = [cell.strip() for cell in line.split("|")]
            if (match := re.fullmatch(r"`(\w+)`", cells[1] if len(cells) > 4 else "")) and cells[column] != "not run":
                rows[path.name, match[1]] = re.search(r"\d+(\.\d+)?", cells[column])[0]
    assert len(rows) == 14
    for (_, name), number in rows.items():
        doc = ast.get_docstring(ast.parse((ROOT / "experiments" / f"{name}.py").read_text(encoding="utf-8")))
        assert number in doc, name
        assert number in results, name


def test_the_layout_is_whole():
    """README's table has every package there is, and nothing else."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme.partition("## Layout")[2].partition("\n## ")[0]
    named = {name for cell in re.findall(r"^\| (`.+?) \|", table, re.M) for name in re.findall(r"`([\w.]+)/?`", cell)}
    scripts = {path.name for path in ROOT.glob("*.py")}
    packages = {path.parent.name for path in ROOT.glob("[a-z]*/*.py")} | {"tests", "notebooks"}
    assert named == scripts | packages


def test_it_is_short_and_plain():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
    for path in DOCS:
        assert not re.findall(r"\b(cards?|houses?|rooms?)\b", path.read_text(encoding="utf-8"), re.I), path


def test_what_is_not_run_is_named_for_a_reason():
    """An entry of `NOT_RUN` that no command begins with is stale."""
    found = [command for path in DOCS for command in commands(path)]
    for beginning in NOT_RUN:
        assert any(command.startswith(beginning) for command in found), beginning


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A folder with the scripts, and with small files under the names that the docs give them."""
    folder = tmp_path_factory.mktemp("docs")
    for script in ROOT.glob("*.py"):
        (folder / script.name).symlink_to(script)
    (folder / "lines.txt").write_text("2026년 11월 30일\nMonday, November 30, 2026\n", encoding="utf-8")
    directory = folder / "DIRECTORY"
    write(directory / "input.txt", "to be or not to be, that is the question\n" * 40)
    syllables = "가나다라마바사아자차카타파하"
    words = [a + b + c for a in syllables for b in syllables for c in ("", "강", "도리")]  # more than a batch of any
    pairs = [f"{word}\t{' '.join(word)}" for word in words]
    write(directory / "kor.txt", "".join(f"I see {i} things.\t{w} 본다.\tCC-BY 2.0\n" for i, w in enumerate(words)))
    for place in (folder / "corpus", directory):
        for split, part in (("train", pairs), ("dev", pairs[::30]), ("test", pairs[::40])):
            write(place / f"kor_{split}.tsv", "\n".join(part) + "\n")
    for split, part in (("train", pairs), ("test", pairs[::40])):
        write(directory / f"cmudict.{split}", "\n".join(part) + "\n")
    for place in (folder / "multi30k", directory / "multi30k"):
        for split, size in (("train", 40), ("val", 6), ("test_2016", 6)):
            write(place / f"{split}.en", "".join(f"{n} dogs run in the park .\n" * (1 + n % 2) for n in range(size)))
            write(place / f"{split}.de", "".join(f"{n} Hunde laufen im Park .\n" * (1 + n % 2) for n in range(size)))
    return folder


def write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.mark.slow
@each_document
def test_commands_run(path, workspace):
    """In the order of the document; a run that a command wants is trained first."""
    for command in commands(path):
        if command.startswith(tuple(NOT_RUN)):
            continue
        script, words = script_and_words(command)
        if script in ("generate", "evaluate") and not (workspace / words[0]).exists():
            run_in(workspace, f"python train.py {Path(words[0]).name} {SMALL['train']}")
        small = "" if script == "train" and (not words or "--help" in words) else SMALL.get(script, "")
        if script == "sweep":  # what is searched is not set, and a grid has its own number of trials
            searched = {"--trials"} if "grid" in words else set()
            searched |= {f"--{word.partition('=')[0]}" for word in words}
            pairs = re.findall(r"(\S+) (\S+)", small)
            small = " ".join(f"{name} {value}" for name, value in pairs if name not in searched)
            small = "" if "--report" in words else small
        target, *streams = re.split(r"(?=\s[<>]\s)", command)
        run_in(workspace, " ".join([target, small, *streams]))


def run_in(folder: Path, command: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=400, input=""
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}"
