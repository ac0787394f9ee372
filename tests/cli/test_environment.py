"""The environment decides nothing: closed, full and narrow streams, debugging switches, what a sandbox refuses."""

import json
import os
import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.scripts import ROOT, in_this_process

PRINTS = """
import sys
from cli.terminal import run_script
def main():
    print("2026년")
    print("Datum: é", file=sys.stderr)
    for _ in range(10_000):
        print("a long text, longer than any buffer")
    open("result", "w").write("kept")
"""
SMALL = [
    *("--model.d_model", "16", "--model.num_heads", "2", "--model.d_ff", "16"),
    *("--train.steps", "2", "--train.log_every", "1", "--data.batch_size", "8"),
]


def shell(command: str, cwd=ROOT, **environment: str) -> subprocess.CompletedProcess:
    """`command` in a shell, where `$python` is this interpreter."""
    environment = {**os.environ, "python": sys.executable, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(["bash", "-c", command], cwd=cwd, env=environment, capture_output=True, timeout=200)


@pytest.mark.parametrize(
    ("redirection", "encoding", "out"),
    [
        ("", "utf-8", "2026년"),
        ("", "ascii", "2026\\ub144"),
        ("", "latin-1", "2026\\ub144"),
        (">&-", "utf-8", None),
        (">&- 2>&-", "utf-8", None),
        (">/dev/full", "utf-8", None),
        ("| head -n 1", "utf-8", "2026년"),
    ],
)
def test_printing_costs_no_result(tmp_path, redirection, encoding, out):
    program = PRINTS + "run_script(main, keep_going=True)\n"
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    done = shell(
        f'set -o pipefail; "$python" program.py {redirection}', tmp_path, PYTHONIOENCODING=encoding, LC_ALL="C"
    )
    assert done.returncode == 0, done
    assert (tmp_path / "result").read_text() == "kept"
    assert b"Traceback" not in done.stderr and b"Error" not in done.stderr
    if out is not None:
        assert done.stdout.decode().splitlines()[0] == out


def test_a_script_whose_results_are_its_output_ends_where_nobody_reads_on(tmp_path):
    (tmp_path / "program.py").write_text(PRINTS + "run_script(main)\n", encoding="utf-8")
    done = shell('"$python" program.py | head -n 1; echo "${PIPESTATUS[0]}"', tmp_path, PYTHONIOENCODING="utf-8")
    assert done.stdout.decode().splitlines() == ["2026년", "1"]
    assert done.stderr.decode(errors="replace").splitlines() == ["Datum: é"]


@pytest.mark.parametrize("words", ["", "reverse --help"])
def test_a_list_and_a_help_text_can_be_cut_short_or_have_no_reader(words):
    for redirection in ("| true", ">&-", "2>&-", ">&- 2>&-"):
        done = shell(f'"$python" train.py {words} {redirection}', COLUMNS="20", TERM="dumb", LC_ALL="C")
        assert done.returncode == 0 and not done.stderr, (redirection, done)


@pytest.mark.parametrize("script", ["generate.py", "evaluate.py"])
def test_help_without_an_open_stdout_is_one_line(script):
    done = shell(f'"$python" {script} --help >&-')
    assert done.returncode in (1, 2) and len(done.stderr.decode().splitlines()) == 1, done


@pytest.mark.slow  # 15 s
def test_a_run_is_finished_whatever_becomes_of_its_output(tmp_path):
    words = " ".join(SMALL)
    for number, redirection in enumerate((">/dev/full 2>/dev/full", ">&- 2>&-", "| head -n 1")):
        run = tmp_path / f"한글-{number}"
        done = shell(
            f'set -o pipefail; "$python" train.py reverse {words} --workdir {run} {redirection}',
            PYTHONIOENCODING="ascii",
        )
        assert done.returncode == 0, done
        assert json.loads((run / "result.json").read_text(encoding="utf-8"))["metrics"]["validation_loss"] > 0


def test_a_step_runs_without_compilation():
    from training.compilation import compile_step

    step = jax.jit(lambda state, batch: state + batch["x"].sum())
    with jax.disable_jit():
        run = compile_step(step, jnp.float32(1), [{"x": jnp.zeros(3)}])
        assert run(jnp.float32(1), {"x": jnp.ones(3)}) == 4


@pytest.mark.slow  # 60 s: every operation by itself
def test_a_run_starts_ends_and_goes_on_without_compilation(tmp_path):
    words = " ".join(SMALL)
    command = f'"$python" train.py reverse {words} --train.save_every 1 --workdir {tmp_path}/run'
    done = shell(command, JAX_DISABLE_JIT="1")
    assert done.returncode == 0, done
    (tmp_path / "run" / "result.json").unlink()
    done = shell(command, JAX_DISABLE_JIT="1")
    assert done.returncode == 0 and b"Traceback" not in done.stderr, done


@pytest.mark.slow  # 9 s
def test_generation_and_evaluation_have_no_nan_that_stands_for_none(monkeypatch, spelling_run, text_run):
    import evaluate
    import generate

    with jax.debug_nans(True):
        for words in ((), ("--sample", "--seed", "3")):
            done = in_this_process(monkeypatch, generate.main, spelling_run, *words, stdin=b"ab\n\nabc\n")
            assert done.code == 0 and done.out, done
        done = in_this_process(monkeypatch, generate.main, text_run, "--prompt", "the cat", "--max_tokens", "5")
        assert done.code == 0 and done.out, done
        for run, words in ((spelling_run, ("--split", "test")), (text_run, ("--split", "validation"))):
            done = in_this_process(monkeypatch, evaluate.main, run, *words)
            assert done.code == 0, done


@pytest.mark.skipif(sys.platform != "linux", reason="huge pages are asked of Linux only")
def test_training_does_without_huge_pages_where_the_interpreter_may_not_be_started_again(monkeypatch):
    from training.huge_pages import use_huge_pages

    def refused(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    monkeypatch.setattr(os, "execv", refused)
    use_huge_pages()
    assert "GLIBC_TUNABLES" not in os.environ


def test_glyphs_that_no_font_has_are_boxes_and_nothing_is_said(tmp_path):
    from analysis.attention import attention_map

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attention_map(np.full((1, 2, 2), 0.5), ["🦜", "ሰ"], ["ﷺ", "한"], tmp_path / "map.png", "🦜")
    assert (tmp_path / "map.png").stat().st_size > 1000


def test_matplotlib_says_nothing_of_a_cache_directory_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    program = "from analysis.curves import training_curves; training_curves([], '/dev/null.png')"
    program = program.replace("/dev/null.png", str(tmp_path / "curves.png"))
    done = shell(f'"$python" -c "{program}"', MPLCONFIGDIR=str(tmp_path / "file" / "no"))
    assert done.returncode == 0 and not done.stderr, done


def test_a_pipe_that_stays_open_is_answered_line_by_line(spelling_run):
    command = [sys.executable, "generate.py", str(spelling_run), "--interactive"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    ) as process:
        answers = []
        for line in (b"ab\n", b"\xff\xfe\n", b"\n", b"ba\n"):
            process.stdin.write(line)
            answers.append(process.stdout.readline().decode())  # would wait for ever if all of stdin were read first
        process.stdin.close()
        errors = process.stderr.read().decode()
        assert process.wait(60) == 0
    assert answers[0] == "A B\n" and answers[1:3] == ["\n", "\n"] and answers[3] == "B A\n"
    assert "line 2: byte 0xff is not UTF-8 text" in errors


def test_a_typed_line_that_is_no_text_does_not_end_the_session(monkeypatch, spelling_run, text_run):
    import generate

    done = in_this_process(monkeypatch, generate.main, spelling_run, stdin=b"ab\n\xe9\nba\n", terminal=True)
    assert done.code == 0 and done.out == "A B\n\nB A\n"
    assert "line 2: byte 0xe9 is not UTF-8 text" in done.err
    done = in_this_process(
        monkeypatch, generate.main, text_run, "--max_tokens", "3", stdin=b"\xe9\nthe\n", terminal=True
    )
    assert done.code == 0 and "line 1: byte 0xe9" in done.err
