"""The benchmark of the input runs, and says what it measured; how fast this machine is, is not tested."""

import importlib

import pytest

from benchmarks.input import EPOCHS, Options, measure
from data.config import DataConfig
from tests.data.in_memory import load_from


@pytest.mark.slow
def test_it_runs(capsys, tmp_path):
    data = load_from(few(tmp_path), DataConfig("reverse", tokens_per_batch=256, buckets=6))
    measured = measure(data, Options(seconds=0, layers=1))
    assert measured["input"] > 0 and measured["model"] > 0
    out = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("epoch ") for line in out) == EPOCHS
    assert "times as fast" in out[-2] and out[-1].startswith("memory grew by")


@pytest.mark.parametrize("module", ["benchmarks.input", "benchmarks.decoding"])
def test_options_are_those_of_the_one_parser(module, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", [module, "--toke", "8"])
    with pytest.raises(SystemExit) as end:
        importlib.import_module(module).main()
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "unknown option --toke; " in said


def few(directory):
    from data.datasets.reverse import Reverse, ReverseConfig
    from data.prepare import prepare_builder

    return prepare_builder(Reverse, str(directory), ReverseConfig(name="few", train_examples=100))
