"""Configs of runs from before an option was renamed or added: they are read, and their directories are theirs still."""

import dataclasses
import json

import pytest

from experiments import reverse
from experiments.experiment import NEW_OPTIONS, OLD_NAMES, config_record
from experiments.registry import read_experiment
from workdir.run_directory import RunDirectoryError, open_run_directory

OLD = {"accumulation": 2, "loss_chunk": 64, "keep_checkpoints": 5}
NOW = {"grad_accumulation_steps": 2, "logits_chunk": 64, "max_to_keep": 5}


@pytest.fixture
def config():
    base = reverse.experiment()
    train = dataclasses.replace(base.config.train, **NOW)
    return dataclasses.replace(base, config=dataclasses.replace(base.config, train=train))


def old_record(experiment) -> dict:
    """As the run wrote it then."""
    record = json.loads(json.dumps(config_record(experiment)))
    new = {*NOW, *NEW_OPTIONS["train"]}
    record["train"] = {name: value for name, value in record["train"].items() if name not in new} | OLD
    return record


def test_the_table_is_whole():
    assert {name for _, name in OLD_NAMES} == set(OLD) and set(OLD_NAMES.values()) == set(NOW)


def test_an_old_config_is_read_under_todays_names(config, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(old_record(config)))
    found, _ = read_experiment(tmp_path / "config.json")
    assert found.config.train == config.config.train and found.config.train.report


def test_an_old_run_is_found_in_its_directory_and_another_is_refused(config, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(old_record(config)))
    assert open_run_directory(tmp_path, config_record(config)).path == tmp_path
    other = config_record(config)
    other["train"] |= {"report": False, "max_to_keep": 6}
    assert open_run_directory(tmp_path, other).changes(other) == {
        "train.report": (True, False),
        "train.max_to_keep": (5, 6),
    }
    other["train"]["logits_chunk"] = 32
    with pytest.raises(RunDirectoryError, match=r"train\.logits_chunk is 64 there and 32 here"):
        open_run_directory(tmp_path, other)
