"""Prepared data that somebody damaged, or that are not ours, are named and left alone."""

from pathlib import Path

import pytest

from data.datasets.reverse import Reverse, ReverseConfig
from data.prepare import prepare, prepare_builder
from data.sources.records import Examples, read_columns

CONFIG = ReverseConfig(name="small", train_examples=30, validation_examples=2, test_examples=2)


def read(directory):
    builder = prepare_builder(Reverse, str(directory), CONFIG)
    return read_columns(builder, "train", ("source", "target"))


def test_preparing_says_one_line_of_ours_and_nothing_of_tfds(tmp_path, capsys, caplog):
    """TFDS's warnings are about folders that it is about to make."""
    (tmp_path / "kor.tsv").write_text("".join(f"{n}\t{n}\n" for n in range(50)))
    prepare(f"tsv:{tmp_path}/kor.tsv", str(tmp_path / "data"))
    out, err = capsys.readouterr()
    assert out.startswith(f"prepared tsv:{tmp_path}/kor.tsv in ") and out.count("\n") == 1 and err == ""
    assert not caplog.records


@pytest.fixture
def prepared(tmp_path):
    read(tmp_path)
    return tmp_path / "reverse" / "small" / "1.0.0"


def train_file(prepared):
    return next(path for path in prepared.iterdir() if "train" in path.name)


def flip(path, start, count=1):
    content = bytearray(path.read_bytes())
    for n in range(start, start + count):
        content[n] ^= 0xFF
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(
    "damage",
    [
        lambda at: (at / "dataset_info.json").write_text('{"name": "rev'),
        lambda at: (at / "dataset_info.json").write_text(""),
        lambda at: (at / "dataset_info.json").write_text("{}"),
        lambda at: train_file(at).unlink(),
        lambda at: train_file(at).write_bytes(b""),
        lambda at: train_file(at).write_bytes(train_file(at).read_bytes()[:300]),
        lambda at: flip(train_file(at), 200),
        lambda at: flip(train_file(at), 65_600, 40),
        lambda at: train_file(at).write_bytes(next(at.glob("*test*")).read_bytes()),
    ],
    ids=[
        "info cut",
        "info empty",
        "info blank",
        "missing",
        "empty",
        "cut",
        "record flipped",
        "footer flipped",
        "other",
    ],
)
def test_damage_is_told_in_one_line(tmp_path, prepared, damage, capsys):
    damage(prepared)
    before = {path: path.read_bytes() for path in prepared.iterdir()}
    capsys.readouterr()
    with pytest.raises(ValueError) as error:
        read(tmp_path)
    message = str(error.value)
    assert "are damaged (" in message and "remove them to prepare them again" in message
    assert str(tmp_path / "reverse") in message and "\n" not in message
    assert {path: path.read_bytes() for path in prepared.iterdir()} == before
    assert capsys.readouterr().out == ""


def test_a_foreign_directory_is_left_alone(tmp_path):
    foreign = tmp_path / "reverse" / "small" / "1.0.0"
    foreign.mkdir(parents=True)
    (foreign / "thesis.tex").write_text("mine")
    with pytest.raises(
        ValueError, match=r"1.0.0 exists and is not a dataset that TFDS prepared: move it away"
    ) as error:
        read(tmp_path)
    assert "\n" not in str(error.value)
    assert [path.name for path in foreign.iterdir()] == ["thesis.tex"]


def test_records_of_another_dataset_are_told(tmp_path, prepared):
    builder = prepare_builder(Reverse, str(tmp_path), CONFIG)
    with pytest.raises(ValueError, match=r"damaged \(its records lack text\)"):
        read_columns(builder, "train", ("text",))
    assert Examples(builder, "train")[0].keys() == {"source", "target"}
    assert Path(builder.data_path) == prepared


@pytest.mark.parametrize(
    "damage",
    [
        lambda at: train_file(at).unlink(),
        lambda at: train_file(at).write_bytes(train_file(at).read_bytes()[:300]),
        lambda at: train_file(at).write_bytes(next(at.glob("*test*")).read_bytes()),
    ],
    ids=["missing", "cut", "other"],
)
def test_missing_and_exchanged_files_are_noticed_before_anything_is_read(tmp_path, prepared, damage):
    damage(prepared)
    with pytest.raises(ValueError, match="are damaged"):
        prepare_builder(Reverse, str(tmp_path), CONFIG)
