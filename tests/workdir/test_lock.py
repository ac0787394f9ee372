"""One process at a time trains in a directory; one that is killed leaves no lock behind."""

import os
import signal
import subprocess
import sys

import pytest

from tests.scripts import ROOT
from tests.small_runs import spelling, spelling_corpus
from train import train
from workdir.lock import directory_lock
from workdir.run_directory import RunDirectoryError

HOLDER = "import sys, time\nfrom pathlib import Path\nfrom workdir.lock import directory_lock\n"
HOLDER += "with directory_lock(Path(sys.argv[1])):\n    print('locked', flush=True)\n    time.sleep(60)"


@pytest.fixture
def holder(tmp_path):
    """A process that has the lock of tmp_path/run."""
    (tmp_path / "run").mkdir()
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "run")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "locked\n"
        yield process
        process.kill()


def test_the_second_is_refused_while_the_first_lives(holder, tmp_path):
    experiment = spelling(tmp_path / "run", spelling_corpus(tmp_path), steps=1)
    with pytest.raises(RunDirectoryError, match=r"run is being trained by another process"):
        train(experiment)
    assert list((tmp_path / "run").iterdir()) == []
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with directory_lock(tmp_path / "run"):
        pass


def test_a_process_may_lock_again_what_it_gave_back(tmp_path):
    for _ in range(2):
        with pytest.raises(KeyError), directory_lock(tmp_path):
            raise KeyError
