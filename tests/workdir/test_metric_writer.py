"""The curves of a run: strict JSON, and without a seam after a resumption."""

import json
import math

import numpy as np
import pytest

from workdir.metric_writer import MetricWriter, read_metrics


def strict(line: str):
    return json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_rows_are_strict_json_and_come_back(tmp_path):
    with MetricWriter(tmp_path, start=0) as writer:
        writer.write(1, "train", {"loss": np.float32(0.1), "tokens": np.int32(128), "learning_rate": 1e-3})
        # On disk at once: a process that is killed has its rows.
        assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 1
        writer.write(2, "train", {"loss": math.nan, "perplexity": math.inf})
    rows = [strict(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert rows[0] == {
        "step": 1,
        "split": "train",
        "loss": float(np.float32(0.1)),
        "tokens": 128,
        "learning_rate": 1e-3,
    }
    assert rows[1] == {"step": 2, "split": "train", "loss": None, "perplexity": None}
    assert math.isnan(read_metrics(tmp_path)[1]["loss"])
    assert read_metrics(tmp_path)[0] == rows[0]


def run(workdir, start, end, last_checkpoint=100):
    """The loop's order: evaluate (at a restored step that was done before its save), step, log."""
    with MetricWriter(workdir, start) as writer:
        for step in range(start, end):
            # Rows that a resumption has to replace are told by their value.
            if step % 2 == 0:
                writer.write(step, "validation", {"loss": 10.0 - step if step <= last_checkpoint else -1.0})
            writer.write(step + 1, "train", {"loss": 20.0 - step if step + 1 <= last_checkpoint else -1.0})


def test_a_resumed_curve_has_no_seam(tmp_path):
    run(tmp_path / "whole", 0, 9)
    run(tmp_path / "stopped", 0, 7, last_checkpoint=4)
    with (tmp_path / "stopped" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 8, "split": "tr')
    assert len(read_metrics(tmp_path / "stopped")) == 4 + 7  # the torn line is not a row
    run(tmp_path / "stopped", 4, 9)
    whole = (tmp_path / "whole" / "metrics.jsonl").read_bytes()
    assert (tmp_path / "stopped" / "metrics.jsonl").read_bytes() == whole


def test_a_run_killed_before_its_first_checkpoint_starts_its_curve_again(tmp_path):
    run(tmp_path / "whole", 0, 5)
    run(tmp_path / "stopped", 0, 3, last_checkpoint=0)
    run(tmp_path / "stopped", 0, 5)
    assert read_metrics(tmp_path / "stopped") == read_metrics(tmp_path / "whole")


def test_a_broken_line_in_the_middle_is_named(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "split": "train"}\n{"step"\n{"step": 3, "split": "train"}\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl, line 2: not JSON"):
        read_metrics(tmp_path)


def test_no_file_no_rows(tmp_path):
    assert read_metrics(tmp_path) == []


def test_tensorboard_gets_the_same_numbers(tmp_path):
    from tensorboardX.proto.event_pb2 import Event

    with MetricWriter(tmp_path, start=3) as writer:
        writer.write(4, "train", {"loss": 0.5, "perplexity": math.inf})
        writer.write(4, "validation", {"loss": 0.25})
    (path,) = (tmp_path / "tensorboard").iterdir()
    content, events = path.read_bytes(), []
    while content:  # TFRecord: length (8 bytes), its checksum (4), the event, its checksum (4)
        length = int.from_bytes(content[:8], "little")
        events.append(Event.FromString(content[12 : 12 + length]))
        content = content[16 + length :]
    values = {(e.step, value.tag): value.simple_value for e in events for value in e.summary.value}
    assert values == {(4, "train/loss"): 0.5, (4, "validation/loss"): 0.25}
    # TensorBoard hides the events of an earlier process from the step after the checkpoint on.
    assert [e.step for e in events if e.HasField("session_log")] == [4]
