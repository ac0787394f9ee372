"""A user's files, from their bytes to the examples that come back: nothing lost, nothing half written."""

import gzip
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from data.config import DataConfig
from data.loading import load
from data.prepare import prepare
from data.sources.records import Examples
from data.sources.text_files import read_lines

ROOT = Path(__file__).resolve().parents[3]


def files(directory, **contents):
    """Write name -> content, `__` for a dot and `_gz` compressed."""
    for name, content in contents.items():
        name = name.replace("__", ".")
        content = content.encode() if isinstance(content, str) else content
        (directory / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return directory


def pairs(builder, split):
    return [(example["source"], example["target"]) for example in Examples(builder, split)]


@pytest.fixture
def place(tmp_path):
    """The prepared data, none at first."""
    return tmp_path / "prepared"


def test_parallel_text_comes_back_in_order(tmp_path, place, capsys):
    # H9, H10: a blank side drops the pair from training, both sides together; held-out splits keep every line.
    files(
        tmp_path,
        train__en="a\r\n\nc\nd\n  \n",
        train__de="x\ny\nz\n\n\n",
        valid__en="a\n\nc\n\n",
        valid__de="x\ny\n\n\n",
        test__en__gz="\ufeffq\u2028r\n",
        test__de__gz="s\0t",
    )
    builder = prepare(f"parallel:{tmp_path}:en-de", str(place))
    assert pairs(builder, "train") == [("a", "x"), ("c", "z")]
    assert pairs(builder, "validation") == [("a", "x"), ("", "y"), ("c", ""), ("", "")]
    assert pairs(builder, "test") == [("q\u2028r", "s\0t")]
    assert len(pickle.dumps(builder)) < 10_000  # as worker processes get it
    assert builder.builder.builder_config.corpus is None
    out = capsys.readouterr().out
    assert "2 train, 4 validation, 1 test examples (en → de; 3 training pairs with a blank side left out)" in out
    # The other direction is other data.
    assert pairs(prepare(f"parallel:{tmp_path}", str(place)), "train") == [("x", "a"), ("z", "c")]
    assert "de → en" in capsys.readouterr().out
    for file in [*tmp_path.glob("*.de"), *tmp_path.glob("*.de.gz")]:
        file.rename(str(file).replace(".de", ".fr"))
    prepare(f"parallel:{tmp_path}:en-fr", str(place))
    assert "en → fr" in capsys.readouterr().out


def test_it_is_prepared_once_and_keyed_by_content(tmp_path, place, capsys, monkeypatch):
    files(tmp_path, a__train__tsv="a\tb\n\tc\n", a__valid__tsv="d\te\n")
    first = prepare(f"tsv:{tmp_path}/a", str(place))
    assert capsys.readouterr().out.startswith(f"prepared tsv:{tmp_path}/a in ")
    shutil.copy(tmp_path / "a.train.tsv", tmp_path / "b.train.tsv")
    shutil.copy(tmp_path / "a.valid.tsv", tmp_path / "b.dev.tsv")
    with monkeypatch.context() as patch:  # files of other names and the same content: nothing is read again
        patch.setattr("data.sources.local_corpus.read_lines", None)
        again = prepare(f"tsv:{tmp_path}/b", str(place))
    assert again.data_path == first.data_path
    # What was left out is said again.
    assert capsys.readouterr().out == f"tsv:{tmp_path}/b: 1 training pairs with a blank side left out\n"
    files(tmp_path, a__valid__tsv="d\tE\n")
    changed = prepare(f"tsv:{tmp_path}/a", str(place))
    assert changed.data_path != first.data_path
    assert pairs(changed, "validation") == [("d", "E")] and pairs(again, "validation") == [("d", "e")]


def test_tsv_takes_two_columns_and_counts_the_others(tmp_path, place, capsys):
    files(tmp_path, train__tsv="a\tb\tCC\nc\td\n\n", dev__tsv="e\tf\tCC\n\n")
    builder = prepare(f"tsv:{tmp_path}", str(place))
    assert pairs(builder, "train") == [("a", "b"), ("c", "d")] and pairs(builder, "validation") == [
        ("e", "f"),
        ("", ""),
    ]
    out = capsys.readouterr().out
    assert "other columns ignored in 2 lines; 1 training pairs with a blank side left out" in out
    assert pairs(prepare(f"tsv:{tmp_path}:2-1", str(place)), "train") == [("b", "a"), ("d", "c")]


def test_a_single_file_gives_three_splits_and_no_source_is_in_two(tmp_path, place, capsys):
    lines = [(f"s{n // 3}", f"t{n}") for n in range(600)]  # each source has three targets
    files(tmp_path, kor__txt="".join(f"{a}\t{b}\n" for a, b in lines))
    builder = prepare(f"tsv:{tmp_path}/kor.txt", str(place))
    splits = {split: pairs(builder, split) for split in ("train", "validation", "test")}
    assert [len(part) for part in splits.values()] == [540, 30, 30]
    assert sorted(pair for part in splits.values() for pair in part) == sorted(lines)
    sources = [{source for source, _ in part} for part in splits.values()]
    assert sum(map(len, sources)) == 200
    for part in splits.values():
        assert part == sorted(part, key=lines.index)  # in the file's order
    assert "validation and test drawn by source from the training pairs" in capsys.readouterr().out


def test_a_missing_validation_split_is_drawn_and_test_is_left_alone(tmp_path, place):
    files(tmp_path, x__train="".join(f"{n}\t{n}\n" for n in range(40)), x__test="1\t1\n")
    builder = prepare(f"tsv:{tmp_path}/x", str(place))
    assert list(builder.info.splits) == ["train", "validation", "test"]
    assert len(pairs(builder, "validation")) == 2 and pairs(builder, "test") == [("1", "1")]
    assert not set(pairs(builder, "validation")) & set(pairs(builder, "train"))


def test_every_message_calls_it_what_the_user_called_it(tmp_path, place, capsys):
    files(tmp_path, x__train__tsv="ab\tc\nabcd\tc\n", x__dev__tsv="aq\tc\n", z__txt="one two\n" * 9)
    source = f"tsv:{tmp_path}/x"
    load(DataConfig(source, batch_size=1, max_source_length=3, directory=str(place)))
    out = capsys.readouterr().out
    assert f"{source}, train: 1 of 2 examples are longer" in out
    assert f"{source}, validation: 1 tokens of source are unknown" in out
    with pytest.raises(ValueError, match="not of both") as error:
        mixture = f"{source}=0.5,text:{tmp_path}/z.txt=0.5"
        load(DataConfig(mixture, batch_size=1, max_target_length=3, directory=str(place)))
    assert f"{source} has source and target, text:{tmp_path}/z.txt has text" in str(error.value)
    with pytest.raises(ValueError, match="has no split 'tset'") as error:
        load(DataConfig(source, batch_size=1, directory=str(place))).num_examples("tset")
    assert "local_" not in str(error.value) and "local_" not in capsys.readouterr().out


def test_text_is_exact_and_its_last_tenth_held_out(tmp_path, place):
    text = "\n\nFirst Citizen:\u2028\0 e\u0301</s>\n" * 7 + "end"
    files(tmp_path, input__txt="\ufeff" + text.replace("\n", "\r\n"))
    builder = prepare(f"text:{tmp_path}/input.txt", str(place))
    (train,), (validation,) = Examples(builder, "train")[:], Examples(builder, "validation")[:]
    assert train["text"] + validation["text"] == text
    assert len(train["text"]) == int(0.9 * len(text))  # as nanoGPT divides it


def test_documents_are_files(tmp_path, place):
    for name in ("train/a", "train/b/c", "valid/d"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n")
    builder = prepare(f"text:{tmp_path}", str(place))
    assert [example["text"] for example in Examples(builder, "train")] == ["train/a\n", "train/b/c\n"]
    shutil.rmtree(tmp_path / "valid")
    builder = prepare(f"text:{tmp_path}", str(place))
    assert [example["text"] for example in Examples(builder, "validation")] == ["train/b/c\n"]


@pytest.mark.parametrize(
    ("contents", "source", "complaint"),
    [
        ({"train__en": "a\nb\n", "train__de": "x\n"}, "parallel:", "train.de has 1 lines, but {at}/train.en has 2"),
        ({"train__tsv": "a\tb\na\tb\nc\n"}, "tsv:", "{at}/train.tsv, line 3: 1 column(s), TAB between them; wanted: 2"),
        ({"train__tsv": "a\tb\n"}, "tsv::3-1", "{at}/train.tsv, line 1: 2 column(s), TAB between them; wanted: 3"),
        ({"train__tsv": b"a\tb\n\xe9\tb\n"}, "tsv:", "{at}/train.tsv, line 2: byte 0xe9 is not UTF-8 text"),
        ({"train__tsv": ""}, "tsv:", "{at}/train.tsv is empty"),
        ({"train__tsv__gz": ""}, "tsv:", "{at}/train.tsv.gz is empty"),
        ({"train__tsv": "a\tb\n", "valid__tsv": ""}, "tsv:", "{at}/valid.tsv is empty"),
        ({"train__tsv": "a\t\n\n\tb\n"}, "tsv:", "{at}/train.tsv has no pair without a blank side to train on"),
        ({"a__tsv": "a\tb\na\tc\n"}, "tsv:a.tsv", "1 distinct sources are too few to draw validation and test from"),
        ({"a__txt": "a"}, "text:a.txt", "{at}/a.txt is too short to take a tenth of it for validation"),
        ({"a__txt": b"\xff\n"}, "text:a.txt", "{at}/a.txt, line 1: byte 0xff is not UTF-8 text"),
    ],
)
def test_what_cannot_be_used_leaves_nothing_behind(tmp_path, place, contents, source, complaint):
    files(tmp_path, **contents)
    kind, _, rest = source.partition(":")
    with pytest.raises(ValueError) as error:
        prepare(f"{kind}:{tmp_path}/{rest}", str(place))
    assert complaint.replace("{at}", str(tmp_path)) in str(error.value) and "\n" not in str(error.value)
    assert not place.exists()


def test_files_that_are_still_being_written_are_not_taken_for_whole(tmp_path, place, monkeypatch):
    files(tmp_path, train__tsv="a\tb\n", valid__tsv="a\tb\n")

    def read_late(path):
        yield from read_lines(path)
        files(tmp_path, train__tsv="a\tb\nc\td\n")

    with monkeypatch.context() as patch:
        patch.setattr("data.sources.local_corpus.read_lines", read_late)
        with pytest.raises(ValueError, match="its files changed while they were read"):
            prepare(f"tsv:{tmp_path}", str(place))
    assert not place.exists()
    assert pairs(prepare(f"tsv:{tmp_path}", str(place)), "train") == [("a", "b"), ("c", "d")]


@pytest.mark.parametrize(
    ("number", "ends"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit), (signal.SIGHUP, SystemExit)]
)
def test_interrupted_preparation_leaves_no_files(number, ends, tmp_path, place, monkeypatch, request):
    from data.sources.local_builder import LocalPairs

    files(tmp_path, train__tsv="a\tb\n", valid__tsv="a\tb\n")
    # As in a terminal: under nohup, or in the background of a shell, some are ignored from the start, and stay so.
    defaults = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    before = {each: signal.signal(each, handler) for each, handler in defaults.items()}
    request.addfinalizer(lambda: [signal.signal(each, handler) for each, handler in before.items()])

    def interrupted(self, examples):
        yield 0, {"source": "a", "target": "b"}
        os.kill(os.getpid(), number)
        time.sleep(10)

    with monkeypatch.context() as patch:
        patch.setattr(LocalPairs, "_generate_examples", interrupted)
        with pytest.raises(ends) as end:
            prepare(f"tsv:{tmp_path}", str(place))
    assert ends is KeyboardInterrupt or end.value.code == 128 + number
    assert signal.getsignal(signal.SIGTERM) is signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    assert not [path for path in place.rglob("*") if path.is_file()]
    assert pairs(prepare(f"tsv:{tmp_path}", str(place)), "train") == [("a", "b")]


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    files(tmp_path, train__tsv="a\tb\n", valid__tsv="a\tb\n", occupied="a file")
    with pytest.raises(ValueError) as error:
        prepare(f"tsv:{tmp_path}", str(tmp_path / "occupied"))
    assert str(error.value).startswith(f"cannot prepare data in {tmp_path}/occupied/local_pairs/")
    assert str(error.value).endswith(
        "choose another place with --data.directory (python -m data.prepare: --directory) or $TFDS_DATA_DIR"
    )
    assert "\n" not in str(error.value) and Path(tmp_path / "occupied").read_text() == "a file"


def test_nothing_of_tensorflow_is_imported(tmp_path, place):
    """Where it is installed, that is; where it is not, this shows that it is not needed."""
    files(tmp_path, train__tsv="a\tb\nc\td\n", valid__tsv="a\tb\n")
    program = (
        "import sys; from data.loading import load; from data.config import DataConfig\n"
        "config = DataConfig(sys.argv[1], batch_size=2, tokenizer='bpe', vocab_size=300, directory=sys.argv[2])\n"
        "next(load(config).train_batches(0))\n"
        "print([name for name in sys.modules if name.partition('.')[0] == 'tensorflow'])"
    )
    command = [sys.executable, "-c", program, f"tsv:{tmp_path}", str(place)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "[]"
