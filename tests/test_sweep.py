"""Sweeps as users run them: real processes, killed with real signals."""

import csv
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sweep import main
from tests.scripts import in_this_process

ROOT = Path(__file__).resolve().parent.parent
SMALL = shlex.split("--model.d_model 16 --model.num_heads 2 --model.d_ff 16 --data.batch_size 8 --train.log_every 10")


def start(*words: str) -> subprocess.Popen:
    command = [sys.executable, "sweep.py", *words]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )


def table(directory: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((directory / "trials.csv").open()))


def process_of(trial: Path) -> int | None:
    """The process that trains in this directory."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(trial).encode() in words and any(word.endswith(b"train.py") for word in words):
            return int(entry.name)
    return None


def wait_for(condition, process: subprocess.Popen | None = None, seconds: float = 200):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.02)
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="finds the trials' processes in /proc")
def test_a_sweep_with_every_kind_of_trouble_accounts_for_each_trial(tmp_path):
    """Six points: one meets a NaN, one is killed as if for its memory, and the sweep itself is killed in between."""
    directory = tmp_path / "sweep"
    words = ["reverse", *SMALL, "--train.steps", "300", "--train.evaluate_every", "100", "--train.save_every", "20"]
    words += ["--sampler", "grid", "--space", "optimizer.peak_lr=1e30,1e-3,2e-3,3e-3,4e-3,5e-3"]
    words += ["--workers", "2", "--workdir", str(directory)]
    trials = [directory / "trials" / f"{number:04d}" for number in range(6)]

    sweep = start(*words)
    # Trial 1 is killed once it trains.
    wait_for(lambda: (trials[1] / "metrics.jsonl").exists(), sweep)
    os.kill(process_of(trials[1]), signal.SIGKILL)
    # The sweep is killed while another, with a checkpoint, is being trained; its trials save their state and end.
    wait_for(lambda: (trials[2] / "checkpoints" / "20").exists(), sweep)
    sweep.kill()
    out, _ = sweep.communicate()
    assert "reverse: 6 runs, 6 to do" in out.splitlines()[0]
    wait_for(lambda: all(process_of(trial) is None for trial in trials), seconds=60)

    sweep = start(*words)
    out, err = sweep.communicate(timeout=300)
    assert sweep.returncode == 1 and err.strip().endswith("python sweep.py: 2 of 6 trials failed"), err
    rows = table(directory)
    assert [row["state"] for row in rows] == ["failed", "failed", *["finished"] * 4]
    assert "nan" in rows[0]["reason"].lower() or "inf" in rows[0]["reason"].lower(), rows[0]
    assert rows[1]["reason"].startswith("killed by SIGKILL")
    assert [float(row["optimizer.peak_lr"]) for row in rows] == [1e30, 1e-3, 2e-3, 3e-3, 4e-3, 5e-3]
    logs = [trial.with_suffix(".log").read_text() for trial in trials]
    assert "trial 0002: resumed" in out and "stopped by SIGTERM" in logs[2]
    assert all(log.count("trained in") == 1 for log in logs[2:]), "each finished once"
    first_step = logs[2].split("reverse: steps ")[2].split(" ")[0]
    assert 20 < int(first_step) <= 300, "it went on from its checkpoint"

    sweep = start(*words)  # there is nothing left to do
    out, _ = sweep.communicate(timeout=100)
    assert sweep.returncode == 1 and "6 runs, 0 to do" in out and "started" not in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["dates", "--trails", "3"], "unknown option --trails; perhaps you meant --trials"),
        (["date", "--trials", "3"], "unknown experiment 'date'; perhaps you meant dates"),
        (["dates", "--trials", "many"], "--trials must be a whole number or None, got 'many'"),
        (["dates", "--trials", "0"], "--trials must be a positive whole number, got 0"),
        (["dates", "--sampler", "best"], "--sampler must be one of 'tpe', 'random', 'grid', got 'best'"),
        (["dates", "--space", "optimizer.peek_lr=1"], "unknown option optimizer.peek_lr; perhaps you meant"),
        (["dates", "--space", "optimizer.peak_lr=fast"], "--space optimizer.peak_lr: must be a number, got 'fast'"),
        (["dates", "--space"], "--space must be text, got nothing"),
        (["dates", "--sampler", "grid"], "--sampler grid wants values to combine, optimizer.peak_lr=VALUE,VALUE"),
        (["dates", "--sampler", "grid", "--trials", "3"], "trials must be left out for a grid"),
        (["dates", "--train.best_metric", "bluh"], "train.best_metric=bluh is not declared"),
        (["dates", "--train.seed", "1", "--space", "train.seed=0,1"], "--train.seed has one value for all trials"),
        (["dates", "--report", "--workdir", "nowhere"], "nowhere has no sweep to report on"),
    ],
)
def test_a_wrong_request_is_refused_before_anything_runs(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = in_this_process(monkeypatch, main, *words)
    assert done.code == 2 and message in done.err and done.err.count("\n") == 1, done
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_sweep_of_which_nothing_succeeds_says_so(tmp_path):
    words = ["reverse", *SMALL, "--train.steps", "5", "--space", "optimizer.peak_lr=1e30", "--sampler", "grid"]
    sweep = start(*words, "--workdir", str(tmp_path / "sweep"))
    _, err = sweep.communicate(timeout=300)
    assert sweep.returncode == 1 and "python sweep.py: no successful trial of 1" in err
    assert "No successful trial." in (tmp_path / "sweep" / "report.md").read_text()


@pytest.mark.slow
def test_a_pruner_stops_what_is_worse_than_the_others(tmp_path):
    words = ["reverse", *SMALL, "--train.steps", "400", "--train.evaluate_every", "20", "--pruner", "median"]
    words += ["--sampler", "grid", "--space", "optimizer.peak_lr=1e-2,9e-3,8e-3,7e-3,6e-3,1e-7"]
    sweep = start(*words, "--workdir", str(tmp_path / "sweep"))
    _, err = sweep.communicate(timeout=400)
    assert sweep.returncode == 0, err
    rows = table(tmp_path / "sweep")
    assert [row["state"] for row in rows] == ["finished"] * 5 + ["stopped early"]
    assert "stopped by SIGTERM" in (tmp_path / "sweep" / "trials" / "0005.log").read_text()


@pytest.mark.slow
def test_ctrl_c_saves_the_trials(tmp_path):
    directory = tmp_path / "sweep"
    words = ["reverse", *SMALL, "--train.steps", "100000", "--trials", "3", "--workdir", str(directory)]
    sweep = start(*words)
    wait_for(lambda: (directory / "trials" / "0000" / "metrics.jsonl").exists(), sweep)
    sweep.send_signal(signal.SIGINT)
    out, _ = sweep.communicate(timeout=100)
    assert sweep.returncode == 130 and "stopped by SIGINT; the same command goes on" in out
    assert "saved in" in (directory / "trials" / "0000.log").read_text()
    assert process_of(directory / "trials" / "0000") is None


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_vectorized_sweep_that_is_stopped_goes_on_to_the_same_numbers(tmp_path, number):
    words = ["reverse", *SMALL, "--train.steps", "400", "--train.evaluate_every", "200", "--train.save_every", "20"]
    words += ["--vectorize", "--sampler", "grid", "--space", "optimizer.peak_lr=1e-3,3e-3,1e-2", "train.seed=0,1"]
    whole = start(*words, "--workdir", str(tmp_path / "whole"))
    _, err = whole.communicate(timeout=300)
    assert whole.returncode == 0, err
    directory = tmp_path / "stopped"
    sweep = start(*words, "--workdir", str(directory))
    wait_for(lambda: (directory / "members" / "0000" / "60").exists(), sweep)
    sweep.send_signal(number)
    sweep.communicate(timeout=100)
    assert sweep.returncode == (143 if number == signal.SIGTERM else -9)
    sweep = start(*words, "--workdir", str(directory))
    out, err = sweep.communicate(timeout=300)
    assert sweep.returncode == 0, err
    assert "reverse: steps 1 to" not in out
    results = [[(row["state"], row["loss"]) for row in table(each)] for each in (tmp_path / "whole", directory)]
    assert results[0] == results[1] and len(results[0]) == 6
    curves = [(each / "trials" / "0003" / "metrics.jsonl").read_text() for each in (tmp_path / "whole", directory)]
    assert curves[0] == curves[1]


@pytest.fixture
def postgresql(tmp_path):
    """URL of a database of a server that was started for this test."""
    bin_folders = [*sorted(Path("/usr/lib/postgresql").glob("*/bin")), *map(Path, os.environ["PATH"].split(":"))]
    found = next((folder for folder in bin_folders if (folder / "initdb").exists()), None)
    if found is None:
        pytest.skip("no PostgreSQL server is installed")
    # The server refuses to be root.
    user = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.getuid() == 0 else {}
    folder = Path("/tmp") / f"qkv-postgresql-{os.getpid()}"  # pytest's is closed to other users
    folder.mkdir()
    if user:
        shutil.chown(folder, "postgres", "postgres")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    subprocess.run(
        [found / "initdb", "-D", folder / "data", "-U", "qkv", "-A", "trust", "--no-sync"],
        check=True,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        **user,
    )
    words = [found / "postgres", "-D", folder / "data", "-p", str(port), "-k", folder, "-h", "127.0.0.1", "-F"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(words, cwd=folder, stdout=log, stderr=log, **user)
    try:
        wait_for(lambda: "ready to accept connections" in (folder / "log").read_text(), seconds=60)
        yield f"postgresql://qkv@127.0.0.1:{port}/postgres"
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(timeout=60)
        shutil.rmtree(folder)


@pytest.mark.slow
def test_workers_share_a_study_in_postgresql_and_one_takes_over_from_another(tmp_path, postgresql):
    pytest.importorskip("psycopg")
    directory = tmp_path / "sweep"
    words = ["reverse", *SMALL, "--train.steps", "600", "--train.evaluate_every", "300", "--train.save_every", "20"]
    words += ["--trials", "6", "--storage", postgresql, "--workdir", str(directory)]
    first = start(*words)
    wait_for(lambda: (directory / "trials" / "0000" / "checkpoints" / "20").exists(), first)
    second = start(*words)
    wait_for(lambda: (directory / "trials" / "0001" / "metrics.jsonl").exists(), second)
    first.kill()
    first.communicate()
    out, err = second.communicate(timeout=400)
    assert second.returncode == 0, err
    assert "trial 0000: resumed" in out
    rows = table(directory)
    assert [row["state"] for row in rows] == ["finished"] * 6
    assert len({row["optimizer.peak_lr"] for row in rows}) == 6
    logs = [(directory / "trials" / f"{number:04d}.log").read_text() for number in range(6)]
    assert all(log.count("trained in") == 1 for log in logs)
