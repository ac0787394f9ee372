"""The curves of a run: strict JSON, and without a seam after a resumption."""

import json
import math

import numpy as np
import pytest

from tests.scripts import python
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


def events_of(path):
    """TFRecord: length (8 bytes), its checksum (4), the event, its checksum (4)."""
    from tensorboardX.proto.event_pb2 import Event

    content, events = path.read_bytes(), []
    while content:
        length = int.from_bytes(content[:8], "little")
        events.append(Event.FromString(content[12 : 12 + length]))
        content = content[16 + length :]
    return events


def scalars(path):
    return {(e.step, value.tag): value.simple_value for e in events_of(path) for value in e.summary.value}


def test_tensorboard_gets_the_same_numbers(tmp_path):
    with MetricWriter(tmp_path, start=3) as writer:
        writer.write(4, "train", {"loss": 0.5, "perplexity": math.inf})
        writer.write(4, "validation", {"loss": 0.25})
    (path,) = (tmp_path / "tensorboard").iterdir()
    assert scalars(path) == {(4, "train/loss"): 0.5, (4, "validation/loss"): 0.25}
    # TensorBoard hides the events of an earlier process from the step after the checkpoint on.
    assert [e.step for e in events_of(path) if e.HasField("session_log")] == [4]


LOST_DRIVE = """
    import resource, sys, threading
    from training import retry
    from workdir.metric_writer import MetricWriter
    retry.RETRY_SECONDS = (1.0,)
    def limit(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    with MetricWriter(sys.argv[1], 0) as writer:
        writer.write(1, "train", {"loss": 1.0})
        limit(60)  # in the middle of the next row
        if sys.argv[2] == "comes back":
            threading.Timer(0.3, limit, [resource.RLIM_INFINITY]).start()
        for step in range(2, 40):
            writer.write(step, "train", {"loss": 1.0})
"""


def test_a_drive_that_drops_and_comes_back_costs_no_row(tmp_path):
    done = python(LOST_DRIVE, str(tmp_path), "comes back")
    assert done.returncode == 0, done.stderr
    assert f"{tmp_path / 'metrics.jsonl'} could not be written, again in 1 s: " in done.stderr
    assert [row["step"] for row in read_metrics(tmp_path)] == list(range(1, 40))


def test_a_drive_that_stays_away_ends_the_run(tmp_path):
    done = python(LOST_DRIVE, str(tmp_path), "stays away")
    assert done.returncode == 1 and done.stderr.strip().endswith("File too large"), done.stderr
    assert [row["step"] for row in read_metrics(tmp_path)] == [1]


@pytest.mark.parametrize("failures", [1, 99])
def test_tensorboard_goes_on_in_a_new_file_or_says_that_it_does_not(tmp_path, failures, monkeypatch, capsys):
    """tensorboardX's own writer would wait forever for its thread, which such an error has ended."""
    from tensorboardX.event_file_writer import EventsWriter

    with MetricWriter(tmp_path, start=0) as writer:
        writer.write(1, "train", {"loss": 1.0})
        write, left = EventsWriter.write_event, [OSError(107, "Endpoint is not connected") for _ in range(failures)]

        def fails(self, event):
            if left:
                raise left.pop()
            return write(self, event)

        monkeypatch.setattr(EventsWriter, "write_event", fails)
        for step in range(2, 40):
            writer.write(step, "train", {"loss": 1.0})
    assert len(read_metrics(tmp_path)) == 39
    error = capsys.readouterr().err
    if failures == 1:
        written = {step for path in (tmp_path / "tensorboard").iterdir() for step, _ in scalars(path)}
        assert error == "" and written == set(range(1, 40))
    else:
        assert error.startswith("TensorBoard gets no row after step 2, ") and error.count("\n") == 1
