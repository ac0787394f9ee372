"""The command line: strict, typed, and quick."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from experiments import registry
from experiments.registry import parse_experiment

ROOT = Path(__file__).resolve().parent.parent.parent


def options(*words: str):
    return parse_experiment("train.py", ["reverse", *words]).config


def refused(capsys, *words: str) -> str:
    """The one line with which `words` are refused, exit code 2."""
    with pytest.raises(SystemExit) as error:
        parse_experiment("train.py", list(words))
    assert error.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1, captured
    return captured.err


def test_options_reach_the_config():
    config = options("--optimizer.peak_lr", "1e-4", "--train.steps=7", "--workdir", "runs/mine", "--model.d_k", "8")
    assert config.optimizer.peak_lr == 1e-4 and isinstance(config.optimizer.peak_lr, float)
    assert (config.train.steps, config.workdir, config.model.d_k) == (7, "runs/mine", 8)
    untouched = options()
    assert untouched.data == config.data and untouched.optimizer.warmup_steps == config.optimizer.warmup_steps


def test_space_and_equals_are_the_same():
    assert options("--optimizer.peak_lr=2e-4") == options("--optimizer.peak_lr", "2e-4")


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["--model.remat"], True),
        (["--model.remat", "True"], True),
        (["--model.remat", "true"], True),
        (["--model.remat=FALSE"], False),
        (["--model.remat", "False"], False),
        (["--model.remat", "--train.steps", "3"], True),
    ],
)
def test_yes_or_no(words, value):
    assert options(*words).model.remat is value


def test_maybe_is_neither(capsys):
    assert "--model.remat must be True or False, got 'maybe'" in refused(capsys, "reverse", "--model.remat", "maybe")


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("--optimizer.peak_lrr", "--optimizer.peak_lr"),
        ("--peak_lr", "--optimizer.peak_lr"),
        ("--steps", "--train.steps"),
        ("--train.stepss=4", "--train.steps"),
        ("--optimizer.warmup", "--optimizer.warmup_steps"),
        ("--droput", "--model.dropout"),
        ("--model.num_head", "--model.num_heads"),
    ],
)
def test_a_misspelt_option_is_refused_and_the_near_one_named(capsys, option, meant):
    message = refused(capsys, "reverse", option, "1")
    assert "perhaps you meant" in message and meant in message


def test_values_are_typed_and_checked(capsys):
    """What the field's type refuses, and what the config refuses: one line either way."""
    for option, value, wanted in (
        ("--train.steps", "1.5", "--train.steps must be a whole number, got '1.5'"),
        ("--optimizer.peak_lr", "abc", "--optimizer.peak_lr must be a number, got 'abc'"),
        ("--model.activation", "rely", "--model.activation must be one of 'relu', 'gelu', got 'rely'"),
        ("--model.d_k", "wide", "--model.d_k must be a whole number or None, got 'wide'"),
        ("--optimizer.peak_lr", "-1", "peak_lr must be a positive number, got -1.0"),
        ("--optimizer.peak_lr", "nan", "peak_lr must be a positive number, got nan"),
        ("--data.buckets", "9", "buckets must be at most 6, not 9"),
        ("--model.num_heads", "5", "divisible"),
    ):
        assert wanted in refused(capsys, "reverse", option, value)
    assert "--train.steps must be a whole number, got nothing" in refused(capsys, "reverse", "--train.steps")
    assert "unknown word '3': options are given as --option VALUE" in refused(capsys, "reverse", "3")


def test_an_unknown_experiment_names_the_near_ones(capsys):
    assert "unknown experiment 'revers'; perhaps you meant reverse" in refused(capsys, "revers")
    assert "cannot read" in refused(capsys, "no/such/config.json")


def test_no_words_list_every_experiment_with_its_first_line(capsys):
    with pytest.raises(SystemExit) as error:
        parse_experiment("train.py", [])
    assert error.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    for name in ("dates", "reverse", "stdlib_char", "modern_char"):
        assert any(line.split()[:1] == [name] and len(line.split()) > 4 for line in lines)


def test_a_new_file_is_a_new_experiment(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text('"""My idea."""\n\ndef experiment():\n    return 1\n')
    (tmp_path / "helper.py").write_text('"""No experiment."""\n')
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "recall.py").write_text('"""C1."""\n\ndef experiment():\n    raise RuntimeError\n')
    (tmp_path / "broken.py").write_text("def experiment(:\n")
    monkeypatch.setattr(registry, "ROOT", tmp_path)
    found = registry.list_experiments()
    assert found == {"broken": "(does not parse: line 1)", "claims.recall": "C1.", "mine": "My idea."}


@pytest.mark.parametrize("words", [[], ["dates", "--help"], ["modern_char", "--help"]])
def test_help_is_quick_and_imports_nothing_heavy(words):
    """At most 1.5 s of processor time, and no JAX, TFDS, Grain, Orbax or matplotlib."""
    code = (
        "import sys, runpy; sys.argv = ['train.py', *sys.argv[1:]]\n"
        "try: runpy.run_path('train.py', run_name='__main__')\n"
        "finally:\n"
        "    heavy = {'jax', 'flax', 'tensorflow_datasets', 'grain', 'orbax', 'matplotlib'} & set(sys.modules)\n"
        "    print('heavy:', sorted(heavy), file=sys.stderr)"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True, text=True, env=os.environ
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    assert "heavy: []" in done.stderr
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.5
    if words:
        assert "--optimizer.peak_lr FLOAT" in done.stdout and "(default: " in done.stdout


def test_every_experiment_answers_help_quickly():
    """One after another in one process, where the first pays for what all import; nothing heavy is imported by any."""
    code = (
        "import contextlib, io, sys, time\n"
        "from experiments.registry import list_experiments, parse_experiment\n"
        "for name in list_experiments():\n"
        "    start, out = time.process_time(), io.StringIO()\n"
        "    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):\n"
        "        parse_experiment('train.py', [name, '--help'])\n"
        "    heavy = {'jax', 'flax', 'tensorflow_datasets', 'grain', 'orbax', 'matplotlib'} & set(sys.modules)\n"
        "    print(name, time.process_time() - start, '--optimizer.peak_lr FLOAT' in out.getvalue(), len(heavy))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert {name for name, *_ in rows} == set(registry.list_experiments())
    for name, seconds, helped, heavy in rows:
        assert (helped, heavy) == ("True", "0") and float(seconds) < 1.5, name
