"""TFDS's own datasets: read without TensorFlow, prepared only where that can work, refused fast."""

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tensorflow_datasets as tfds

from data.config import DataConfig
from data.loading import load
from data.prepare import main, prepare
from data.sources import tfds_datasets as tfds_sets
from data.sources.grammar import parse_source
from data.sources.records import Examples, read_columns
from tests.data.in_memory import generate

ROOT = Path(__file__).resolve().parents[3]
SENTENCES = [("Ein Haus.", "A house."), ("Ja", "Yes"), ("Nein", "No")]


@pytest.fixture
def translate(tmp_path):
    languages = tfds.features.Translation(languages=("de", "en"))
    rows = [dict(zip(("de", "en"), pair)) for pair in SENTENCES]
    generate(tmp_path, "wmt14_translate", languages, rows, ("de", "en"), "de-en")
    return str(tmp_path)


@pytest.mark.parametrize(
    ("source", "turned"),
    [
        ("tfds:wmt14_translate/de-en", False),
        ("tfds:wmt14_translate/de-en:1.0.0", False),
        ("tfds:wmt14_translate/de-en:de-en", False),
        ("tfds:wmt14_translate/de-en:en-de", True),
    ],
)
def test_pairs_by_their_languages(translate, source, turned):
    builder = prepare(source, translate)
    columns = read_columns(builder, "train", ("source", "target"))
    pairs = list(zip(columns["source"], columns["target"]))
    assert pairs == [pair[::-1] if turned else pair for pair in SENTENCES]
    assert Examples(builder, "validation")[1] == dict(zip(("source", "target"), pairs[1]))


def test_it_loads_like_any_other(translate):
    data = load(DataConfig(source="tfds:wmt14_translate/de-en:en-de", batch_size=2, directory=translate))
    assert data.examples("train")[:] == [{"source": en, "target": de} for de, en in SENTENCES]
    labels = next(data.eval_batches("train"))["labels"]
    assert [data.tokenizers["target"].decode(row) for row in labels] == ["Ein Haus.", "Ja"]


def test_text_beside_features_that_are_none(tmp_path):
    features = {"text": tfds.features.Text(), "label": tfds.features.ClassLabel(num_classes=2)}
    generate(tmp_path, "reviews", features, [{"text": "good", "label": 1}])
    assert Examples(prepare("tfds:reviews", str(tmp_path)), "train")[:] == [{"text": "good"}]


def test_validation_is_the_end_of_training_where_there_is_no_such_split(tmp_path, capsys):
    rows = [{"text": f"sentence {number}"} for number in range(300)]
    generate(tmp_path, "lm1b", {"text": tfds.features.Text()}, rows, splits=("train", "test"))
    data = load(DataConfig(source="tfds:lm1b", batch_size=4, max_target_length=32, directory=str(tmp_path)))
    assert "the last 3 of 300 training examples are taken for it" in capsys.readouterr().out
    assert data.examples("train")[:] == rows[:-3] and data.examples("validation")[:] == rows[-3:]
    assert data.examples("test")[:] == rows


def test_a_text_that_is_its_own_target_is_text(tmp_path):
    generate(tmp_path, "lm1b", {"text": tfds.features.Text()}, [{"text": "good"}], supervised_keys=("text", "text"))
    assert Examples(prepare("tfds:lm1b", str(tmp_path)), "train")[:] == [{"text": "good"}]


def test_features_that_cannot_be_told_apart(tmp_path):
    generate(tmp_path, "three", {name: tfds.features.Text() for name in "abc"}, [dict(a="1", b="2", c="3")])
    with pytest.raises(
        ValueError, match=r"its text features are a, b, c .*wanted is a choice of two, as in tfds:three:"
    ):
        prepare("tfds:three", str(tmp_path))
    assert Examples(prepare("tfds:three:c-a", str(tmp_path)), "train")[0] == {"source": "3", "target": "1"}
    with pytest.raises(ValueError, match=r"text features are a, b, c"):
        prepare("tfds:three:c-z", str(tmp_path))


def test_what_is_not_prepared_names_the_command(tmp_path):
    with pytest.raises(ValueError) as error:
        prepare("tfds:wmt14_translate/de-en:en-de", str(tmp_path))
    assert str(error.value) == (
        f"tfds:wmt14_translate/de-en:en-de is not prepared in {tmp_path}: "
        f"run python -m data.prepare tfds:wmt14_translate/de-en --directory {tmp_path}"
    )


def test_a_version_may_be_named(translate):
    assert prepare("tfds:wmt14_translate/de-en:1.0.0:en-de", translate).columns == {"source": "en", "target": "de"}
    with pytest.raises(ValueError, match=r"tfds:wmt14_translate/de-en:2\.0\.0 is not prepared"):
        prepare("tfds:wmt14_translate/de-en:2.0.0", translate)


@pytest.mark.parametrize("name", ["../x", "wmt14_translate/de-en/x", "wmt14_translate/de-en:new", "x[:10%]"])
def test_what_is_no_name_is_not_called_damaged_data(translate, name):
    with pytest.raises(ValueError, match=r"is not of the form tfds:NAME\[/CONFIG\]\[:VERSION\]$"):
        prepare(f"tfds:{name}", translate)


def test_another_format_is_refused(translate):
    info = Path(translate) / "wmt14_translate" / "de-en" / "1.0.0" / "dataset_info.json"
    info.write_text(info.read_text().replace('"array_record"', '"tfrecord"'))
    with pytest.raises(ValueError, match=r"is in tfrecord, which takes TensorFlow to read; wanted is array_record"):
        prepare("tfds:wmt14_translate/de-en", translate)


@pytest.mark.parametrize("file", ["features.json", "dataset_info.json"])
def test_a_damaged_description_is_told(translate, file):
    path = Path(translate) / "wmt14_translate" / "de-en" / "1.0.0" / file
    path.write_text(path.read_text()[:40])
    with pytest.raises(ValueError, match="are damaged") as error:
        prepare("tfds:wmt14_translate/de-en", translate)
    assert "\n" not in str(error.value)


def test_prepared_again_is_found(translate, monkeypatch):
    monkeypatch.setattr(tfds_sets, "can_connect", None)  # nothing to ask for
    builder = tfds_sets.prepare_tfds(parse_source("tfds:wmt14_translate/de-en"), translate)
    assert len(Examples(builder, "train")) == 3


@pytest.mark.parametrize("network", [True, False])
@pytest.mark.parametrize("tensorflow", [True, False])
def test_what_is_missing_is_said(network, tensorflow, monkeypatch):
    monkeypatch.setattr(tfds_sets, "can_connect", lambda: network)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if tensorflow else None)
    source = parse_source("tfds:wmt14_translate/de-en")
    if network and tensorflow:
        tfds_sets.check_means(source)
        return
    with pytest.raises(ValueError, match=r"then run python -m data\.prepare tfds:wmt14") as error:
        tfds_sets.check_means(source)
    assert ("pip install -e '.[tf]'" in str(error.value)) == (not tensorflow)
    assert ("cannot be reached" in str(error.value)) == (not network)


def test_a_misspelt_name_is_refused_with_the_near_ones():
    with pytest.raises(ValueError, match=r"TFDS has no dataset 'imdb_review'; perhaps you meant imdb_reviews"):
        tfds_sets.check_name(parse_source("tfds:imdb_review/plain_text:1.0.0"))
    tfds_sets.check_name(parse_source("tfds:imdb_reviews/plain_text:1.0.0"))


def test_a_network_that_swallows_everything_costs_no_more_than_the_patience(monkeypatch):
    def swallow(*_, **__):
        time.sleep(2)
        raise TimeoutError

    monkeypatch.setattr(tfds_sets, "PATIENCE", 0.2)
    monkeypatch.setattr(tfds_sets.urllib.request, "getproxies", dict)
    monkeypatch.setattr(tfds_sets.socket, "create_connection", swallow)
    start = time.perf_counter()
    assert not tfds_sets.can_connect()
    assert time.perf_counter() - start < 1


def test_a_proxy_is_asked_instead(monkeypatch):
    asked = []
    monkeypatch.setattr(tfds_sets.socket, "create_connection", lambda address, **_: asked.append(address) or _Closed())
    for proxy in ({"https": "http://proxy.example:3128"}, {"https": "proxy.example:3128"}, {}):
        monkeypatch.setattr(tfds_sets.urllib.request, "getproxies", lambda proxy=proxy: proxy)
        assert tfds_sets.can_connect()
    assert asked == [("proxy.example", 3128)] * 2 + [tfds_sets.HOST]


class _Closed:
    def close(self):
        pass


@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is not None, reason="TensorFlow is installed")
def test_the_command_line_gives_up_within_seconds(tmp_path):
    start = time.perf_counter()
    run = subprocess.run(
        [sys.executable, "-m", "data.prepare", "tfds:wmt14_translate/de-en", "--directory", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"https_proxy": "http://127.0.0.1:9"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 1 and run.stdout == ""
    assert run.stderr.count("\n") == 1 and "TensorFlow, which is not installed" in run.stderr
    assert "cannot be reached" in run.stderr
    assert time.perf_counter() - start < 20  # 1 s where nothing else runs
    assert not list(tmp_path.iterdir())


def test_the_command_line_takes_what_training_takes(tmp_path, monkeypatch, capsys):
    """A mixture: each of its sources."""
    for name in ("x", "y"):
        for split in ("train", "dev"):
            (tmp_path / f"{name}_{split}.tsv").write_text(f"{name}\t{split}\n")
    mixture = f"tsv:{tmp_path}/x=0.7,tsv:{tmp_path}/y=0.3"
    monkeypatch.setattr(sys, "argv", ["prepare", mixture, "--directory", str(tmp_path / "prepared")])
    main()
    said = [line.partition(" is in ") for line in capsys.readouterr().out.splitlines() if " is in " in line]
    assert [source for source, *_ in said] == [f"tsv:{tmp_path}/x", f"tsv:{tmp_path}/y"]
    assert all(Path(place, "dataset_info.json").exists() for *_, place in said)


def test_the_command_line_tells_usage_from_failure(tmp_path):
    run = [sys.executable, "-m", "data.prepare"]
    shortened = ["dates", "--dir", str(tmp_path)]  # no abbreviations, as of train.py
    for words, code in ((["csv:x"], 2), ([], 2), (shortened, 2), ([f"tsv:{tmp_path}/x"], 1), (["rev"], 1)):
        result = subprocess.run([*run, *words], cwd=ROOT, capture_output=True, text=True)
        assert result.returncode == code and "Traceback" not in result.stderr
