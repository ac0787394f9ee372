"""Tables and curves of runs: real files, values by hand."""

import json

import pytest

from reporting import compare, runs
from reporting.run_summary import summarize
from tests.scripts import in_this_process


def write_run(path, config, rows=(), result=None):
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config))
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if result is not None:
        (path / "result.json").write_text(json.dumps({"metrics": result, "figures": {}}))
    return path


@pytest.fixture
def folder(tmp_path):
    def rows(loss):
        train = [{"step": step, "split": "train", "loss": loss + 1 / step} for step in (50, 100)]
        return [*train, {"step": 100, "split": "validation", "loss": loss, "exact_match": 0.25}]

    config = {"experiment": "reverse", "optimizer": {"peak_lr": 1e-3}, "train": {"steps": 100, "seed": 0}}
    other = config | {"optimizer": {"peak_lr": 3e-3}, "train": {"steps": 200, "seed": 0}}
    write_run(tmp_path / "runs" / "a", config, rows(0.5), {"validation_loss": 0.5, "test_exact_match": 0.75})
    write_run(tmp_path / "runs" / "sweep" / "b", other, rows(0.4))
    write_run(tmp_path / "runs" / "c", config)
    return tmp_path / "runs"


def test_each_run_below_a_folder_has_its_line(folder, monkeypatch):
    (folder / "damaged").mkdir()
    (folder / "damaged" / "config.json").write_text("{")
    done = in_this_process(monkeypatch, runs.main, folder)
    lines = [line.split() for line in done.out.splitlines()]
    assert done.code == 0 and [line[0] for line in lines] == ["run", "a", "c", "sweep/b"]
    assert lines[1][4:] == ["finished", "0.5000", "exact", "match", "0.2500"]
    assert lines[2][4:] == ["step", "0", "of", "100"]
    assert lines[3][4:] == ["step", "100", "of", "200", "0.4000", "exact", "match", "0.2500"]
    assert "left out: " in done.err and "damaged" in done.err


def test_a_comparison_has_the_options_that_differ_and_the_results(folder, tmp_path, monkeypatch):
    output = tmp_path / "figure.png"
    done = in_this_process(monkeypatch, compare.main, folder / "a", folder / "sweep" / "b", "--output", output)
    lines = [line.split() for line in done.out.splitlines()]
    assert done.code == 0, done.err
    assert lines[0] == ["a", "b"]
    assert ["optimizer.peak_lr", "0.001", "0.003"] in lines and ["train.steps", "100", "200"] in lines
    assert not any(line[0] == "train.seed" for line in lines)
    assert ["validation", "loss", "0.5000", "0.4000"] in lines and ["test_exact_match", "0.7500"] in lines
    assert output.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["runs/a"], "wanted two runs or more"),
        (["runs/a", "runs/nothing"], "runs/nothing is not the directory of a run"),
        (["runs/a", "runs/c", "--metric", "los"], "no run has it; perhaps you meant loss"),
        (["runs/a", "runs/c", "--metrics", "loss"], "unknown option --metrics; perhaps you meant --metric"),
    ],
)
def test_a_wrong_request_is_one_line(words, message, folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    done = in_this_process(monkeypatch, compare.main, *words)
    assert done.code == 2 and message in done.err and done.err.count("\n") == 1


def test_a_folder_without_runs_says_so(tmp_path, monkeypatch):
    assert in_this_process(monkeypatch, runs.main, tmp_path).out == f"no runs in {tmp_path}\n"
    done = in_this_process(monkeypatch, runs.main, tmp_path / "nowhere")
    assert done.code == 1 and "is not a folder" in done.err


def test_the_curves_drawn_are_those_of_the_files(folder):
    """The figure's lines hold the numbers of metrics.jsonl."""
    from analysis.comparison import compare_curves

    found = {name: summarize(folder / name).rows for name in ("a", "sweep/b")}
    axis = compare_curves(found, "loss", folder / "curves.png").axes[0]
    drawn = [(list(line.get_xdata()), list(line.get_ydata())) for line in axis.lines]
    assert drawn == [
        ([50, 100], [0.5 + 1 / 50, 0.5 + 1 / 100]),
        ([100], [0.5]),
        ([50, 100], [0.4 + 1 / 50, 0.4 + 1 / 100]),
        ([100], [0.4]),
    ]
    assert axis.get_xlabel() == "step" and "nats per token" in axis.get_ylabel()
