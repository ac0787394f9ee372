"""A run does not go on on other data than it began with, and is not scored on them, and says which have changed."""

import gzip
import shutil
from dataclasses import replace

import pytest

import evaluate
import train
from data.config import DataConfig
from data.loading import load
from tests.scripts import in_this_process
from workdir.data_record import check_data_record, keep_data_record
from workdir.run_directory import RunDirectory, RunDirectoryError


@pytest.fixture
def run(spelling_run, tmp_path):
    """A finished run of its own, whose files may be changed."""
    shutil.copytree(spelling_run.parent, tmp_path, dirs_exist_ok=True)
    for name in ("config.json", "data.json"):
        file = tmp_path / "run" / name
        file.write_text(file.read_text().replace(str(spelling_run.parent), str(tmp_path)))
    return tmp_path / "run"


def test_files_that_change_after_a_run_began(run, tmp_path, monkeypatch):
    """The real thing: somebody edits the files of a run while it is stopped."""
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "prepared"))
    monkeypatch.setenv("GLIBC_TUNABLES", "")  # else train.py would start this process again, for its memory's sake

    def go_on():
        return in_this_process(monkeypatch, train.main, run / "config.json")

    def score():
        return in_this_process(monkeypatch, evaluate.main, run, "--split", "validation")

    file, finished = tmp_path / "spelling_train.tsv", (run / "result.json").read_bytes()
    before = file.read_text()
    for content, change in (
        (before.replace("ab\tA B\n", "ab\tB A\n"), "train: as many examples, but other texts"),
        (before + "ab\tB A\n", "train: 36 examples then, 37 now"),
    ):
        file.write_text(content)
        assert go_on().code == 0  # a finished run is read back without its data
        (run / "result.json").unlink()  # and now as if it had been stopped after its last save
        for done in (go_on(), score()):
            assert done.code == 2
            said = f"{run}: tsv:{tmp_path}/spelling has changed since this run began ({change}); "
            assert said in done.err.splitlines()[-1]
        assert not (run / "result.json").exists()
        (run / "result.json").write_bytes(finished)
    file.write_text(before)
    (tmp_path / "spelling_test_more.tsv").write_text("ab\tA B\n")  # a further test set is no change
    assert score().code == 0


def pairs(folder, name, rows):
    folder.mkdir(exist_ok=True)
    for split, some in rows.items():
        (folder / f"{name}_{split}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in some))
    return f"tsv:{folder}/{name}"


def test_each_source_of_a_mixture_is_compared(tmp_path):
    rows = {"train": [("ab", "c"), ("a", "bc")], "dev": [("a", "b")]}
    one, other = pairs(tmp_path, "one", rows), pairs(tmp_path, "other", rows)
    config = DataConfig(f"{one}=0.7,{other}=0.3", batch_size=1, directory=str(tmp_path / "prepared"))
    run = RunDirectory(tmp_path)
    assert not check_data_record(run, load(config))
    keep_data_record(run, load(config))
    assert check_data_record(run, load(config))
    # Another order, the same letters divided otherwise between the texts, other letters.
    for changed in ([("a", "bc"), ("ab", "c")], [("a", "c"), ("ba", "bc")], [("ax", "c"), ("a", "bc")]):
        pairs(tmp_path, "other", rows | {"train": changed})
        with pytest.raises(RunDirectoryError, match=f"{other} has changed since this run began .train: as many"):
            keep_data_record(run, load(config))
    pairs(tmp_path, "other", rows)
    content = (tmp_path / "other_train.tsv").read_bytes()
    (tmp_path / "other_train.tsv").unlink()
    (tmp_path / "other_train.tsv.gz").write_bytes(gzip.compress(content))
    assert check_data_record(run, load(config))  # the same texts
    (tmp_path / "other_dev.tsv").rename(tmp_path / "other_dev.tsv.old")
    with pytest.raises(RunDirectoryError, match="has changed"):
        check_data_record(run, load(config))
    (tmp_path / "data.json").write_text("{}")
    with pytest.raises(RunDirectoryError, match=r"data\.json is damaged"):
        check_data_record(run, load(replace(config, source=one)))
