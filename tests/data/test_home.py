"""Without a home directory nothing is kept in a directory called `~`; what is to be named instead is said."""

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

import train
from data.datasets.reverse import Reverse
from data.home import data_directory, expand_home
from data.prepare import prepare
from data.sources.builders import make_builder
from data.sources.grammar import parse_source
from data.sources.tfds_datasets import open_tfds
from data.tokenizers.bpe import SubwordTokenizer
from tests.scripts import in_this_process


@pytest.fixture(params=["no $HOME", "an empty $HOME"])
def homeless(request, monkeypatch, tmp_path):
    """A user whom the system does not know, in a directory of its own."""

    def unknown(*_):
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(pwd, "getpwnam", unknown)
    monkeypatch.delenv("TFDS_DATA_DIR", raising=False)
    if request.param == "no $HOME":
        monkeypatch.delenv("HOME", raising=False)
    else:
        monkeypatch.setenv("HOME", "")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "use",
    [
        lambda: prepare("dates"),
        lambda: make_builder(Reverse),
        lambda: open_tfds(parse_source("tfds:lm1b")),
    ],
)
def test_data_have_no_place(homeless, use):
    with pytest.raises(ValueError, match=r"no home directory.*--data\.directory.*\$TFDS_DATA_DIR") as error:
        use()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("use", "option"),
    [
        (lambda: prepare("dates", "~/data"), "--data.directory"),
        (lambda: prepare("dates", "~nobody/data"), "--data.directory"),
        (lambda: prepare("tsv:~/x.tsv"), "--data.source"),
        (lambda: prepare("text:a+~/x.txt"), "--data.source"),
        (lambda: prepare("parallel:~/a+~/x"), "--data.source"),
        (lambda: SubwordTokenizer.from_file("~/tokenizer.json"), "--data.tokenizer_file"),
    ],
)
def test_what_names_the_home_directory_is_refused_by_its_option(homeless, use, option):
    with pytest.raises(ValueError, match="there is no home directory") as error:
        use()
    assert str(error.value).startswith(f"{option} ~")


def test_so_is_a_run_s_directory(homeless, monkeypatch):
    monkeypatch.setenv("GLIBC_TUNABLES", "")  # else train.py would start this process again, for its memory's sake
    done = in_this_process(monkeypatch, train.main, "reverse", "--workdir=~/runs/x")  # no shell expands ~ behind =
    assert done.code == 2 and done.err.startswith("python train.py: --workdir ~/runs/x: there is no home directory")


def test_the_home_directory_is_found(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("TFDS_DATA_DIR", raising=False)
    assert data_directory() == f"{tmp_path}/tensorflow_datasets"
    assert data_directory("~/x") == expand_home("~/x", "--workdir") == f"{tmp_path}/x"
    monkeypatch.setenv("TFDS_DATA_DIR", "~/y")
    assert data_directory() == f"{tmp_path}/y" and data_directory("./~") == "./~"


def test_with_a_place_for_the_data_nothing_is_made_elsewhere(tmp_path):
    """Neither by TFDS, which has ideas of its own about the home directory when it is imported."""
    program = (
        "import pwd, runpy\ndef unknown(*_): raise KeyError\n"
        "pwd.getpwuid = unknown\nrunpy.run_module('data.prepare', run_name='__main__')"
    )
    (tmp_path / "x.tsv").write_text("a\tb\n" * 9 + "".join(f"{n}\tb\n" for n in range(9)))
    environment = {key: value for key, value in os.environ.items() if key not in ("HOME", "TFDS_DATA_DIR")}
    environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    for words, code in ((["tsv:x.tsv"], 1), (["tsv:x.tsv", "--directory", "here"], 0)):
        done = subprocess.run(
            [sys.executable, "-c", program, *words], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == code, done.stderr
        assert {path.name for path in tmp_path.iterdir()} == {"x.tsv"} | ({"here"} if code == 0 else set())
