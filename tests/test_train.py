"""The whole line as users run it: real processes, real files, real signals."""

import dataclasses
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import reverse
from experiments.experiment import standard_step
from experiments.reports import no_report
from train import main, train
from training.finite import NonFiniteError
from workdir.metric_writer import read_metrics
from workdir.restore import load_run
from workdir.run_directory import RunDirectoryError

ROOT = Path(__file__).resolve().parent.parent
SMALL = [
    "--model.d_model",
    "16",
    "--model.num_heads",
    "2",
    "--model.d_ff",
    "16",
    "--data.batch_size",
    "8",
    "--model.dropout",
    "0.1",
    "--train.log_every",
    "1",
    "--train.evaluate_every",
    "4",
]


def start(*words: str, **kwargs) -> subprocess.Popen:
    command = [sys.executable, "train.py", *words]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8", **kwargs
    )


def run(*words: str) -> tuple[int, str, str]:
    process = start(*words)
    out, err = process.communicate(timeout=240)
    return process.returncode, out, err


def small(workdir: Path, steps: int = 10, **train_options):
    base = reverse.experiment()
    options = {"steps": steps, "log_every": 1, "evaluate_every": 4} | train_options
    config = dataclasses.replace(
        base.config,
        data=dataclasses.replace(base.config.data, batch_size=8),
        model=dataclasses.replace(base.config.model, d_model=16, num_heads=2, d_ff=16, dropout=0.1),
        train=dataclasses.replace(base.config.train, **options),
        workdir=str(workdir),
    )
    return dataclasses.replace(base, config=config, report=no_report)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run: its directory, to be read only."""
    path = tmp_path_factory.mktemp("trained") / "run"
    train(small(path, steps=3))
    return path


def losses(workdir: Path) -> dict[tuple[int, str], float]:
    return {(row["step"], row["split"]): row["loss"] for row in read_metrics(workdir)}


def assert_same_bits(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.mark.slow
def test_reverse_reaches_its_published_number(tmp_path):
    """The smallest experiment, as it is: 100% of the held-out strings, in under a minute of training."""
    base = reverse.experiment()
    clock = time.process_time()
    result = train(dataclasses.replace(base, config=dataclasses.replace(base.config, workdir=str(tmp_path / "run"))))
    assert result.metrics["validation_exact_match"] == 1.0
    assert time.process_time() - clock < 180  # processor seconds, compilation and this suite's neighbours included
    assert result.figures["training"].read_bytes().startswith(b"\x89PNG")
    assert result.params["encoder"]["feed_forward"]["hidden"]["kernel"].shape == (1, 64, 128)


def test_a_stopped_run_goes_on_as_if_nothing_had_happened(tmp_path):
    """SIGTERM to a real process in the middle: exit code 143, and the same bits as a run in one piece; those of the
    parameters' moving average too."""
    options = {"steps": 400, "evaluate_every": 100, "ema": 0.9}
    whole = train(small(tmp_path / "whole", **options))
    words = ["reverse", *SMALL, "--workdir", str(tmp_path / "stopped")]
    words += [word for name, value in options.items() for word in (f"--train.{name}", str(value))]
    process = start(*words)
    metrics = tmp_path / "stopped" / "metrics.jsonl"
    deadline = time.monotonic() + 200
    while not (metrics.exists() and metrics.read_text().count("\n") > 20):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 143, err
    assert "stopped by SIGTERM after" in out
    steps_before = max(step for step, _ in losses(tmp_path / "stopped"))
    assert steps_before < 400

    code, out, err = run(*words)
    assert code == 0, err
    assert f"steps {steps_before + 1} to 400" in out
    assert losses(tmp_path / "stopped") == losses(tmp_path / "whole")
    assert_same_bits(train(small(tmp_path / "stopped", **options)).params, whole.params)
    averages = [load_run(tmp_path / name).select_params("ema").params for name in ("stopped", "whole")]
    assert_same_bits(*averages)
    assert any((a != b).any() for a, b in zip(*map(jax.tree.leaves, (averages[0], whole.params))))


@pytest.mark.slow
def test_a_killed_run_goes_on_from_its_last_checkpoint(tmp_path):
    """SIGKILL leaves rows after the last checkpoint; going on, they are neither doubled nor missing."""
    whole = train(small(tmp_path / "whole", steps=300, save_every=10))
    words = ["reverse", *SMALL, "--train.steps", "300", "--train.save_every", "10"]
    words += ["--workdir", str(tmp_path / "killed")]
    process = start(*words)
    metrics = tmp_path / "killed" / "metrics.jsonl"
    deadline = time.monotonic() + 200
    while not (metrics.exists() and metrics.read_text().count("\n") > 60):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.communicate()
    result = train(small(tmp_path / "killed", steps=300, save_every=10))
    rows = [(row["step"], row["split"]) for row in read_metrics(tmp_path / "killed")]
    assert len(rows) == len(set(rows))
    assert losses(tmp_path / "killed") == losses(tmp_path / "whole")
    assert_same_bits(result.params, whole.params)


def test_a_finished_run_is_found_and_another_config_is_refused(tmp_path, trained):
    shutil.copytree(trained, tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    words = ["reverse", *SMALL, "--train.steps", "3", "--workdir", str(tmp_path / "run")]
    code, out, err = run(*words)
    assert code == 0, err
    assert "finished after 3 steps" in out and "figures/training.png" in out
    again = train(small(tmp_path / "run", steps=3))
    assert again.metrics["validation_loss"] == losses(trained)[3, "validation"]
    assert_same_bits(again.params, load_run(trained).select_params("last").params)

    code, out, err = run(*words, "--optimizer.peak_lr", "0.5")
    assert code == 2
    assert err.count("\n") == 1 and "optimizer.peak_lr is 0.003 there and 0.5 here" in err
    assert {path: path.read_bytes() for path in before} == before

    stranger = tmp_path / "notes"
    stranger.mkdir()
    (stranger / "thesis.txt").write_text("mine")
    code, out, err = run("reverse", "--workdir", str(stranger))
    assert code == 2 and "thesis.txt" in err
    assert [path.name for path in stranger.iterdir()] == ["thesis.txt"]


def test_a_finished_run_is_trained_longer(tmp_path, capsys):
    """With a schedule that does not know the end, six steps and four more are ten; with one that does, it is told."""

    def steps(name: str, count: int, schedule: str, **train_options):
        options = {"evaluate_every": 2, "save_every": 2, "report": False} | train_options
        experiment = small(tmp_path / name, count, **options)
        return train(changed(experiment, "optimizer", schedule=schedule, warmup_steps=2, peak_lr=1e-2))

    whole = steps("whole", 10, "constant")
    steps("longer", 6, "constant")
    capsys.readouterr()
    longer = steps("longer", 10, "constant", keep_every=4)
    out = capsys.readouterr().out
    assert "reverse: train.steps is 10 from here on, and was 6\n" in out and "train.keep_every is 4" in out
    assert "its learning rate goes on as it would have, 0.01 in step 7" in out
    assert_same_bits(longer.params, whole.params)
    assert losses(tmp_path / "longer") == losses(tmp_path / "whole")
    assert (tmp_path / "longer" / "result_6.json").exists() and longer.metrics == whole.metrics
    load_run(tmp_path / "longer").select_params("4")  # the newest three are 6, 8 and 10

    steps("cosine", 6, "cosine")
    capsys.readouterr()
    steps("cosine", 10, "cosine")
    assert "its schedule is that of a run of 10 steps: the learning rate was 0 in step 6" in capsys.readouterr().out
    rates = {r["step"]: r["learning_rate"] for r in read_metrics(tmp_path / "cosine") if r["split"] == "train"}
    for step in (7, 10):
        assert rates[step] == pytest.approx(1e-2 * 0.5 * (1 + math.cos(math.pi * (step - 2) / 8)), abs=1e-9)

    with pytest.raises(RunDirectoryError, match=r"train\.steps is 10 there and 6 here"):
        steps("longer", 6, "constant")


def changed(experiment, section: str, **options):
    config = experiment.config
    return dataclasses.replace(
        experiment,
        config=dataclasses.replace(config, **{section: dataclasses.replace(getattr(config, section), **options)}),
    )


def no_memory(*_):
    raise MemoryError


def test_a_run_that_never_began_binds_nobody(tmp_path, monkeypatch):
    """Data that cannot be had, or are not for the model, and options that do not fit: nothing is written."""
    experiment = small(tmp_path / "run", steps=2)
    (tmp_path / "x.txt").write_text("some text " * 9)
    text = {"source": f"text:{tmp_path}/x.txt", "max_target_length": 9, "directory": str(tmp_path / "prepared")}
    mistaken = [
        changed(experiment, "data", source="tsv:nowhere"),
        changed(experiment, "data", batch_size=10**6),
        changed(experiment, "data", **text),
        changed(experiment, "model", max_length=4),
        changed(experiment, "train", best_metric="blue"),
        changed(experiment, "train", best_metric="bleu"),  # declared, but not measured by this experiment
    ]
    for each in mistaken:
        with pytest.raises(ValueError):
            train(each)
        assert not list((tmp_path / "run").iterdir())

    seen = []

    def looks(*parts):
        seen.append([path.name for path in (tmp_path / "run").iterdir()])
        return standard_step(*parts)

    monkeypatch.setattr("training.log.MetricLogger.add", no_memory)  # a batch too large shows in the first step
    with pytest.raises(MemoryError):
        train(dataclasses.replace(experiment, step=looks))
    assert seen == [[]]  # so a process that is killed during set-up leaves nothing either
    assert not list((tmp_path / "run").iterdir())


def test_an_undeclared_metric_is_refused_before_the_data_are_read(tmp_path):
    """The direction is not guessed: `ppl` would have been the better the higher."""
    experiment = changed(small(tmp_path / "run"), "data", source="tsv:nowhere")
    with pytest.raises(
        ValueError, match=r"train\.best_metric=ppl is not declared.* accuracy, bleu, chrf, exact_match, loss, "
    ):
        train(changed(experiment, "train", best_metric="ppl"))
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match=r"metrics\['ppl'\] must be 'min' or 'max'"):
        dataclasses.replace(experiment, metrics={"ppl": "lower"})


def test_a_run_goes_on_from_the_newest_checkpoint_that_is_whole(tmp_path, capsys):
    """A copy that was broken off is named and passed over, by training as by who uses the run."""
    whole = train(small(tmp_path / "whole", steps=6, save_every=2))
    path = tmp_path / "run"
    shutil.copytree(tmp_path / "whole", path)
    (path / "result.json").unlink()
    shutil.rmtree(path / "checkpoints" / "6" / "state")
    capsys.readouterr()
    chosen = load_run(path).select_params("last")
    assert chosen.description == "step 4, the last"
    assert f"{path}/checkpoints/6 is passed over: it has no state" in capsys.readouterr().err
    result = train(small(path, steps=6, save_every=2))
    out, err = capsys.readouterr()
    assert "steps 5 to 6" in out and f"{path}/checkpoints/6 is passed over: it has no state\n" in err
    assert_same_bits(result.params, whole.params)
    assert sorted(each.name for each in (path / "checkpoints").iterdir()) == ["2", "4", "6", "6.damaged"]


@pytest.mark.parametrize("name", ["config.json", "data.json", "data_spec.json", "metrics.jsonl", "result.json"])
def test_a_damaged_file_of_a_run_is_named(tmp_path, trained, name):
    shutil.copytree(trained, tmp_path / "run")
    for content in (b"{\n", b"[1]\n", b"{}\n", b"\xff\n"):
        if name in ("data.json", "metrics.jsonl"):  # a finished run is not held against its data
            (tmp_path / "run" / "result.json").unlink(missing_ok=True)
        (tmp_path / "run" / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"(run/{name.replace('.', '[.]')}|another run)"):
            train(small(tmp_path / "run", steps=3))


def test_ctrl_c_before_the_first_step_is_one_line(monkeypatch, capsys):
    def interrupted(experiment):
        raise KeyboardInterrupt

    monkeypatch.setattr("train.train", interrupted)
    monkeypatch.setattr("training.huge_pages.use_huge_pages", lambda: None)  # starts the program anew
    monkeypatch.setattr("sys.argv", ["train.py", "reverse"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 130
    assert capsys.readouterr().err == "python train.py: interrupted\n"


def test_the_saved_config_alone_runs_it_again(tmp_path, trained):
    code, _, err = run(str(trained / "config.json"), "--workdir", str(tmp_path / "second"))
    assert code == 0, err
    assert losses(tmp_path / "second") == losses(trained)

    record = json.loads((trained / "config.json").read_text())
    record["optimizer"]["peak_rl"] = 1.0
    (tmp_path / "config.json").write_text(json.dumps(record))
    code, _, err = run(str(tmp_path / "config.json"))
    assert code == 2 and "unknown key optimizer.peak_rl; perhaps you meant optimizer.peak_lr" in err


def test_nan_stops_the_run_with_a_finite_checkpoint(tmp_path):
    """A learning rate of 1e30 makes the loss infinite within steps; what was saved before is finite."""
    words = ["reverse", *SMALL, "--optimizer.peak_lr", "1e30", "--optimizer.warmup_steps", "0"]
    words += ["--train.save_every", "1", "--optimizer.clip_norm", "0", "--workdir", str(tmp_path / "run")]
    code, _, err = run(*words)
    assert code == 1, err
    last_line = err.strip().splitlines()[-1]
    assert last_line.startswith("python train.py: the ") and "at step" in last_line
    from training.checkpoint import CheckpointManager
    from workdir.train_state import new_state

    experiment = small(tmp_path / "unused")
    optimizer = dataclasses.replace(experiment.config.optimizer, clip_norm=0.0)
    experiment = dataclasses.replace(experiment, config=dataclasses.replace(experiment.config, optimizer=optimizer))
    model = experiment.model(experiment.config, {"source": 14, "target": 14})
    state = jax.eval_shape(lambda: new_state(experiment, model, {"source": (8, 13), "target": (8, 13)}))
    with CheckpointManager(tmp_path / "run" / "checkpoints", 3) as checkpoints:
        restored, _ = checkpoints.restore(state)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((restored.params, restored.opt_state)))


def test_a_step_that_spoils_the_parameters_is_never_saved(tmp_path):
    """An experiment's own, with a finite loss: it is named, and the newest checkpoint is the one before it."""
    base = small(tmp_path / "run", save_every=1)

    def step(config, loss, optimizer, schedule):
        standard = base.step(config, loss, optimizer, schedule)

        def train_step(state, batch):
            new, metrics = standard(state, batch)
            factor = jnp.where(new.step == 3, jnp.nan, 1.0)
            return new._replace(params=jax.tree.map(lambda x: x * factor, new.params)), metrics

        return train_step

    with pytest.raises(NonFiniteError, match=r"^step 3 has left NaN or infinity in the parameters$"):
        train(dataclasses.replace(base, step=step))
    saved = load_run(tmp_path / "run").select_params("last")
    assert saved.name == "step2" and all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(saved.params))
    assert not (tmp_path / "run" / "result.json").exists()


def test_validation_that_is_not_finite_ends_the_run(tmp_path, monkeypatch, capsys):
    """With exit code 1 and one line, though all that was trained is finite; the run is not finished."""
    base = small(tmp_path / "run", steps=1)

    def loss(config, model):
        standard = base.loss(config, model)

        def nan_on_validation(params, batch, key, hyper):
            metrics = standard(params, batch, key, hyper)
            total, count = metrics["loss"]
            return metrics | {"loss": (total if key is not None else total * jnp.nan, count)}

        return nan_on_validation

    monkeypatch.setattr("experiments.registry.parse_experiment", lambda *_: dataclasses.replace(base, loss=loss))
    monkeypatch.setattr("training.huge_pages.use_huge_pages", lambda: None)  # starts the program anew
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error == "python train.py: the loss on validation after step 1 is nan"
    assert [row["split"] for row in read_metrics(tmp_path / "run")] == ["train"]
    assert not (tmp_path / "run" / "result.json").exists()


def test_batches_that_do_not_divide_the_devices_are_refused(tmp_path):
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    process = start("reverse", "--data.batch_size", "6", "--workdir", str(tmp_path / "run"), env=environment)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1 and "4 devices, such as 4 or 8" in err


@pytest.mark.slow
def test_four_devices_learn_the_same(tmp_path):
    """The same global batches on 4 devices: the same losses to 1e-5, the same number of held-out examples."""
    train(small(tmp_path / "one", steps=8))
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    words = ["reverse", *SMALL, "--train.steps", "8", "--workdir", str(tmp_path / "four")]
    process = start(*words, env=environment)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    one, four = losses(tmp_path / "one"), losses(tmp_path / "four")
    assert one.keys() == four.keys()
    np.testing.assert_allclose([four[key] for key in one], list(one.values()), rtol=1e-5)


@pytest.mark.parametrize("argv", [["x", "-f", "kernel.json"]])
def test_a_notebook_s_arguments_are_left_alone(tmp_path, monkeypatch, argv):
    monkeypatch.setattr(sys, "argv", argv)
    assert train(small(tmp_path / "run", steps=2)).metrics["validation_loss"] > 0
    assert sys.argv == argv
