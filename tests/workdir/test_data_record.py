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
from workdir.digests import write_digests
from workdir.run_directory import RunDirectory, RunDirectoryError


@pytest.fixture
def run(spelling_run, tmp_path):
    """A finished run of its own, whose files may be changed."""
    shutil.copytree(spelling_run.parent, tmp_path, dirs_exist_ok=True)
    for name in ("config.json", "data.json"):
        file = tmp_path / "run" / name
        file.write_text(file.read_text().replace(str(spelling_run.parent), str(tmp_path)))
    write_digests(RunDirectory(tmp_path / "run"))
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


def test_moved_data_are_scored_and_gone_on_with_from_their_new_place(run, tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "prepared"))
    monkeypatch.setenv("GLIBC_TUNABLES", "")  # else train.py would start this process again, for its memory's sake
    new, other = f"tsv:{tmp_path}/new/words", f"tsv:{tmp_path}/other/words"
    for name in ("new", "other"):
        (tmp_path / name).mkdir()
        for file in tmp_path.glob("spelling_*.tsv"):
            shutil.copy(file, tmp_path / name / file.name.replace("spelling", "words"))
    with (tmp_path / "other" / "words_train.tsv").open("a") as file:
        file.write("ab\tB A\n")
    for file in tmp_path.glob("spelling_*.tsv"):
        file.unlink()
    config, result = (run / "config.json").read_bytes(), (run / "result.json").read_bytes()

    def go_on(source):
        return in_this_process(monkeypatch, train.main, run / "config.json", "--data.source", source)

    def score(*words):
        return in_this_process(monkeypatch, evaluate.main, run, "--split", "validation", *words)

    assert score().code == 2 and score("--data.source", new).code == 0
    for finished in (True, False):
        if not finished:
            (run / "result.json").unlink()  # as if it had been stopped after its last save
        done = go_on(other)
        assert done.code == 2 and f"{other} is not (train: 36 examples then, 37 now)" in done.err.splitlines()[-1]
        assert (run / "result.json").exists() == finished
        assert go_on(new).code == 0 and (run / "result.json").exists()
    assert "is not (train: 36 examples then, 37 now)" in score("--data.source", other).err.splitlines()[-1]
    # What a run is told to learn from is its config; another kind of data, or another option, is another run.
    assert (run / "config.json").read_bytes() == config and len(result) > 2
    assert "data.source is" in go_on("dates").err
    done = in_this_process(monkeypatch, train.main, run / "config.json", "--data.source", new, "--data.buckets", "2")
    assert done.code == 2 and "data.buckets is 1 there and 2 here" in done.err and "data.source" not in done.err


def test_a_moved_mixture_keeps_its_order(tmp_path):
    rows = {"train": [("ab", "c"), ("a", "bc")], "dev": [("a", "b")]}
    others = rows | {"train": [("x", "c"), ("y", "bc")]}
    names = [pairs(tmp_path, "b", rows), pairs(tmp_path, "a", others)]  # data.json has them in the other order
    moved = [pairs(tmp_path / "c", "c", rows), pairs(tmp_path / "c", "d", others)]
    run = RunDirectory(tmp_path)

    def mixture(one, other):
        return DataConfig(f"{one}=0.5,{other}=0.5", batch_size=1, directory=str(tmp_path / "prepared"))

    run.write("config.json", {"data": {"source": mixture(*names).source}})
    keep_data_record(run, load(mixture(*names)))
    assert check_data_record(run, load(mixture(*moved)))
    with pytest.raises(RunDirectoryError, match="is what this run began with"):
        check_data_record(run, load(mixture(*reversed(moved))))
