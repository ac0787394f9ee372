"""A run whose files are not as they were written is neither resumed nor read."""

import shutil
import subprocess

import numpy as np
import pytest

from tests.small_runs import spelling
from train import train
from workdir.digests import FILE_NAME
from workdir.restore import load_run
from workdir.run_directory import RunDirectoryError

DAMAGED = ["config.json", "data.json", "data_spec.json", "result.json", "tokenizers", FILE_NAME]


@pytest.fixture
def run(spelling_run, tmp_path):
    shutil.copytree(spelling_run, tmp_path / "run")
    return tmp_path / "run"


def test_the_common_program_checks_them(run):
    done = subprocess.run(["sha256sum", "--check", FILE_NAME], cwd=run, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count(": OK\n") == 6, done


@pytest.mark.parametrize("name", DAMAGED)
def test_a_flipped_bit_anywhere_is_named(run, name):
    load_run(run)
    for file in sorted((run / name).rglob("*")) or [run / name]:
        content, random = file.read_bytes(), np.random.default_rng(0)
        for place in {0, len(content) - 1, *random.integers(len(content), size=20).tolist()}:
            flipped = bytearray(content)
            flipped[place] ^= 1 << int(random.integers(8))
            file.write_bytes(bytes(flipped))
            with pytest.raises(RunDirectoryError, match=rf"{run}.* (damaged|not as it was written|missing)"):
                load_run(run)
        file.write_bytes(content)
    load_run(run)


def test_a_missing_file_is_named_and_a_removed_result_is_not(run):
    (run / "result.json").unlink()
    load_run(run)
    (run / "data.json").unlink()
    with pytest.raises(RunDirectoryError, match=r"data\.json is missing"):
        load_run(run)


def test_training_is_not_resumed_from_an_edited_config(run, spelling_run):
    config = run / "config.json"
    config.write_text(config.read_text().replace('"seed": 0', '"seed": 1'))
    source = f"tsv:{spelling_run.parent}/spelling"
    experiment = spelling(run, source, ema=0.9, best_metric="exact_match", max_to_keep=2, seed=1)
    with pytest.raises(RunDirectoryError, match=r"config\.json is not as it was written"):
        train(experiment)


def test_a_run_of_an_older_version_has_none(run):
    (run / FILE_NAME).unlink()
    load_run(run)
