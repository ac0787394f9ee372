"""Progress: what is shown where, and a speed that is true."""

import re

import pytest

from training import progress as progress_module
from training.progress import Progress


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 1000.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(progress_module, "time", clock)
    return clock


def test_speed_leaves_out_compilation_and_pauses(clock):
    with Progress(total=100) as progress:
        clock.now += 50.0  # compilation
        progress.update(1, loss=5.0, tokens=1000)
        assert progress.tokens_per_second is None
        clock.now += 2.0
        progress.update(11, loss=4.0, tokens=4000)
        assert progress.tokens_per_second == pytest.approx(2000.0)
        with progress.paused("evaluating"):
            clock.now += 30.0
        clock.now += 1.0
        progress.update(21, loss=3.0, tokens=3000)
        assert progress.tokens_per_second == pytest.approx(3000.0)


def test_plain_output_is_a_line_now_and_then_on_stderr(clock, capsys):
    with Progress(total=1000, start=0) as progress:
        for step in range(1, 1001):
            clock.now += 0.1
            progress.update(step, loss=0.5, tokens=100)
    out, err = capsys.readouterr()
    assert out == "" and "\x1b" not in err and "\r" not in err
    lines = err.splitlines()
    assert len(lines) == 11  # 100 seconds: the first step, then one line in 10 s, and the last step
    assert lines[0] == "step 1/1,000  loss 0.5000"
    assert lines[1] == "step 101/1,000  loss 0.5000  1,000 tokens/s  0:01:30 left"
    assert lines[-1].startswith("step 1,000/1,000 ") and lines[-1].endswith("0:00:00 left")


def test_a_resumed_run_counts_from_its_start(clock, capsys):
    with Progress(total=100, start=80) as progress:
        progress.update(81, loss=1.0, tokens=10)
        clock.now += 10.0
        progress.update(91, loss=1.0, tokens=100)
    assert capsys.readouterr().err.splitlines()[-1] == "step 91/100  loss 1.0000  10 tokens/s  0:00:09 left"


def test_a_terminal_gets_a_bar(monkeypatch, capsys):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with Progress(total=20_000) as progress:
        progress.update(12_000, loss=0.1234, tokens=1)
        progress.update(12_001, loss=0.1234, tokens=1)
        print("a result")
    out, err = capsys.readouterr()
    assert out == "a result\n"  # stdout is not a terminal here, so the bar leaves it alone
    assert "\x1b" in err and re.search(r"━.*step 12,001/20,000  loss 0.1234  [\d,]+ tokens/s  [\d:]+ left", err)


def test_a_notebook_gets_one_line_that_is_rewritten():
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    code = """
from training.progress import Progress
with Progress(total=10) as progress:
    for step in range(1, 11):
        progress.update(step, loss=0.25, tokens=100)
"""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    (output,) = notebook.cells[0].outputs  # no warning, no second output
    assert output.output_type == "display_data"
    assert output.data["text/plain"].startswith("step 10/10  loss 0.2500  ")
