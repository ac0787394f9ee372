"""Weights & Biases in its offline mode: what its own file holds, read without its package's reader."""

import dataclasses
import json
import math
from pathlib import Path

import pytest
import wandb
from wandb.proto.wandb_internal_pb2 import Record

from experiments import reverse
from sweeps.options import parse_sweep
from tests.scripts import in_a_process, python
from train import train
from workdir import tracking
from workdir.metric_writer import MetricWriter, read_metrics


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")


def records(path: Path) -> list[Record]:
    """The records of a file in LevelDB's log format, after a header of 7 bytes."""
    content, place, parts, found = path.read_bytes(), 7, b"", []
    while place + 7 <= len(content):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        parts += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            found.append(Record.FromString(parts))
            parts = b""
    return found


def tracked(workdir: Path) -> list[list[Record]]:
    """The records of each process that has tracked the run, the oldest first."""
    wandb.teardown()  # the package's own process has written all when it has ended
    return [records(path) for path in sorted((workdir / "wandb").glob("offline-run-*/run-*.wandb"))]


def rows(process: list[Record]) -> list[dict]:
    """The rows that a process has logged, by name."""
    found = []
    for record in process:
        if record.HasField("history"):
            row = {".".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
            found.append({name: value for name, value in row.items() if not name.startswith("_")})
    return found


def small(workdir: Path, **train_options):
    base = reverse.experiment()
    options = {"steps": 4, "log_every": 2, "evaluate_every": 4, "save_every": 2, "track": "wandb"} | train_options
    config = dataclasses.replace(
        base.config,
        model=dataclasses.replace(base.config.model, d_model=16, num_heads=2, d_ff=16),
        train=dataclasses.replace(base.config.train, **options),
        workdir=str(workdir),
    )
    return dataclasses.replace(base, config=config)


def test_a_run_is_tracked_with_its_config_its_rows_and_its_result(tmp_path):
    result = train(small(tmp_path / "my-run", report=False))
    loop, end = tracked(tmp_path / "my-run")
    (run,) = (record.run for record in loop if record.HasField("run"))
    assert run.display_name == "my-run" and run.project == "qkv"
    assert run.run_id == (tmp_path / "my-run" / "wandb_id").read_text()
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert config["experiment"] == "reverse" and config["train"]["steps"] == 4

    wanted = [
        {"step": row.pop("step")} | {f"{row['split']}/{name}": value for name, value in row.items() if name != "split"}
        for row in read_metrics(tmp_path / "my-run")
    ]
    assert len(wanted) == 3 and rows(loop) == wanted
    axes = {record.metric.name or record.metric.glob_name: record.metric.step_metric for record in loop}
    assert axes["*"] == "step"
    assert next(record.run.run_id for record in end if record.HasField("run")) == run.run_id
    summary = {item.key: json.loads(item.value_json) for record in end for item in record.summary.update if item.key}
    assert summary["validation_loss"] == result.metrics["validation_loss"]


def test_a_resumed_process_goes_on_under_the_same_id(tmp_path):
    for start in (0, 2):
        with MetricWriter(tmp_path, start, tracking.open_trackers("wandb", tmp_path, {})) as writer:
            for step in range(start, start + 3):
                writer.write(step, "train", {"loss": 1.0 / (1 + step), "perplexity": math.inf})
    first, second = tracked(tmp_path)
    ids = {record.run.run_id for record in first + second if record.HasField("run")}
    assert ids == {(tmp_path / "wandb_id").read_text()}
    assert [row["step"] for row in rows(first)] == [0, 1, 2]
    assert [row["step"] for row in rows(second)] == [3, 4]  # the row of step 2, the checkpoint's, is there already
    assert "train/perplexity" not in rows(first)[0]


@pytest.mark.parametrize(("end", "code"), [(SystemExit(143), 143), (ValueError("NaN"), 1), (None, 0)])
def test_a_process_that_does_not_finish_is_shown_so(tmp_path, end, code):
    try:
        with MetricWriter(tmp_path, 0, tracking.open_trackers("wandb", tmp_path, {})) as writer:
            writer.write(1, "train", {"loss": 1.0})
            if end is not None:
                raise end
    except type(end):
        pass
    ((*_, last),) = tracked(tmp_path)
    assert last.exit.exit_code == code


def test_a_tracker_that_fails_does_not_end_the_run(tmp_path, capsys):
    class Failing:
        name = "the tracker"

        def log(self, step, values):
            raise ConnectionError("gone")

        def close(self, exit_code=0):
            raise AssertionError("closed after it had failed")

    with MetricWriter(tmp_path, 0, [Failing()]) as writer:
        for step in (1, 2):
            writer.write(step, "train", {"loss": 1.0})
    assert len(read_metrics(tmp_path)) == 2
    message = f"the tracker gets no row after step 1, {tmp_path / 'metrics.jsonl'} has all: gone\n"
    assert capsys.readouterr().err == message


NOT_LOGGED_IN = """
    import netrc, sys
    from tests.workdir.test_tracking import small
    from train import train
    try:
        train(small(sys.argv[1]))
    except ValueError as error:
        print(error)
"""


def test_without_a_login_nothing_begins(tmp_path):
    environment = {"WANDB_MODE": "online", "WANDB_API_KEY": "", "HOME": str(tmp_path), "NETRC": str(tmp_path / "none")}
    done = python(NOT_LOGGED_IN, str(tmp_path / "run"), **environment)
    assert done.stdout == "train.track wandb: nobody is logged in: run `wandb login`, or set WANDB_MODE=offline\n"
    assert not (tmp_path / "run").exists()


def test_without_the_package_nothing_begins(monkeypatch):
    monkeypatch.setattr(tracking.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"needs the package wandb: python -m pip install -e '\.\[wandb\]'"):
        tracking.check_tracking("wandb")
    with pytest.raises(ValueError, match="needs the package wandb"):
        parse_sweep("sweep.py", ["reverse", "--train.track", "wandb"])
    tracking.check_tracking("none")


def test_an_unknown_tracker_is_refused():
    done = in_a_process("train.py", "reverse", "--train.track", "mlflow")
    assert done.code == 2 and "mlflow" in done.err and "wandb" in done.err
