"""One line far longer than all others: where it stands, and what leaves it out."""

import gzip

import pytest

from data.config import DataConfig
from data.length_check import check_lengths
from data.loading import load
from data.locate import locate
from experiments import reverse

LONG = "b" * 1000


def corpus(tmp_path, kind):
    """The long one is a source in line 3, behind a pair that is left out."""
    sources, targets = ["a", "", LONG, "c", *"defgh" * 60], ["x", "y", "z", "x", *"xyzxy" * 60]
    if kind == "parallel":
        for split in ("train", "dev"):
            (tmp_path / f"{split}.en").write_bytes("".join(f"{x}\n" for x in sources).encode())
            (tmp_path / f"{split}.de").write_bytes("".join(f"{x}\n" for x in targets).encode())
        return f"parallel:{tmp_path}:en-de", tmp_path / "train.en"
    rows = "".join(f"{target}\t{source}\n" for source, target in zip(sources, targets)).encode()
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv.gz").write_bytes(gzip.compress(rows))
    return f"tsv:{tmp_path}:2-1", tmp_path / "train.tsv.gz"


@pytest.mark.parametrize("kind", ["parallel", "tsv"])
def test_a_line_that_makes_every_batch_wide_is_named(kind, tmp_path, capsys):
    source, file = corpus(tmp_path, kind)
    config = DataConfig(source, batch_size=2, directory=str(tmp_path / "prepared"))
    data = load(config)
    out = capsys.readouterr().out
    assert f"the longest source has 1,001 tokens ({file}, line 3), and so wide are batches; 99% have at most 2" in out
    assert "--data.max_source_length leaves longer ones out" in out and "longest target" not in out
    base = reverse.experiment().config
    with pytest.raises(ValueError) as error:
        check_lengths(config, base.model.max_length, data)
    said = str(error.value)
    assert said.startswith(f"the longest source has 1001 tokens ({file}, line 3), more than model.max_length=16: ")
    assert "--data.max_source_length 16 leaves longer ones out" in said and "--model.max_length" in said
    file.unlink()
    assert locate(data, "source", 1) == f"example 1 of {source}"


def test_with_a_limit_nothing_is_said_of_it(tmp_path, capsys):
    source, _ = corpus(tmp_path, "tsv")
    limits = {"max_source_length": 16, "max_target_length": 16}
    data = load(DataConfig(source, batch_size=2, directory=str(tmp_path / "prepared"), **limits))
    assert "longest" not in capsys.readouterr().out
    base = reverse.experiment().config
    check_lengths(data.config, base.model.max_length, data)
