"""Metrics: means that do not depend on the batches, and curves without a seam."""

import dataclasses
import json
import math

import jax.numpy as jnp
import numpy as np
import pytest

from training.metrics import MetricAccumulator, MetricWriter, perplexity, read_metrics


def test_means_are_sums_over_counts():
    totals = MetricAccumulator()  # 10 tokens of loss 2 and 100 tokens of loss 4: not the mean of the means, 3.0
    totals.add({"loss": (np.float32(20.0), np.int32(10)), "accuracy": (5, 10)})
    totals.add({"loss": (jnp.float32(400.0), jnp.int32(100)), "accuracy": (50, 100)})
    assert totals.means() == {"loss": pytest.approx(420 / 110, abs=1e-12), "accuracy": 0.5}
    assert totals.counts == {"loss": 110, "accuracy": 110}


def test_totals_are_kept_in_float64_and_integers():
    totals = MetricAccumulator()
    for _ in range(1000):
        totals.add({"loss": (np.float32(2.0**24), np.int32(2**30))})
        totals.add({"loss": (np.float32(1.0), np.int32(1))})
    assert totals.sums["loss"] == 1000 * 2**24 + 1000  # float32 would lose every 1.0
    assert totals.counts["loss"] == 1000 * 2**30 + 1000  # int32 would overflow


def test_nothing_counted_is_zero_and_seen_in_the_counts():
    totals = MetricAccumulator()
    totals.add({"loss": (0.0, 0)})
    assert totals.means() == {"loss": 0.0} and totals.counts == {"loss": 0}


def test_a_count_is_an_integer():
    with pytest.raises(TypeError):
        MetricAccumulator().add({"loss": (1.0, 0.5)})


def test_totals_go_through_json():
    totals = MetricAccumulator()
    totals.add({"loss": (0.1, 3)})
    again = MetricAccumulator(**json.loads(json.dumps(dataclasses.asdict(totals))))
    again.add({"loss": (0.2, 4)})
    totals.add({"loss": (0.2, 4)})
    assert again == totals


def test_perplexity():
    assert perplexity(math.log(50.0)) == pytest.approx(50.0)
    assert perplexity(1000.0) == math.inf
    assert math.isnan(perplexity(math.nan))


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
