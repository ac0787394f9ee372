"""The builders: deterministic, disjoint, counted, and prepared without TensorFlow."""

import datetime
import os
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import babel
import pytest

from data import prepare as preparing
from data.datasets.date_forms import FORMS, languages, templates, write
from data.datasets.dates import STRANGE, Dates, DatesConfig, split_days, train_sizes
from data.datasets.reverse import Reverse, ReverseConfig
from data.datasets.stdlib import Stdlib, StdlibConfig, read_sources, read_topics, split_of
from data.prepare import prepare, prepare_builder
from data.sources.records import Examples, read_columns

SPLITS = ("train", "validation", "test")
LANGUAGES = (
    "ko",
    "en",
    "es",
    "mas",
    "cs",
    "hr",
    "pl",
    "ar",
    "zh",
    "zh_Hant",
    "rof",
    "tok",
    "teo",
    "lg",
    "dua",
    "ast",
    "id",
)
SMALL = dict(languages=LANGUAGES, train_examples=90, validation_examples=6, test_examples=9, first_year=2000)


def small_dates(directory, **changes):
    return prepare_builder(Dates, str(directory), DatesConfig(name="small", **SMALL | {"last_year": 2003} | changes))


@pytest.fixture(scope="module")
def dates(tmp_path_factory):
    return small_dates(tmp_path_factory.mktemp("dates"))


def all_examples(builder):
    return {split: Examples(builder, split)[:] for split in SPLITS}


def files(builder):
    return {path.name: path.read_bytes() for path in Path(builder.data_path).iterdir() if "array_record" in path.name}


def test_two_preparations_are_equal_byte_for_byte(dates, tmp_path):
    assert files(dates) == files(small_dates(tmp_path)) and len(files(dates)) == 3
    assert files(dates) != files(small_dates(tmp_path / "other", seed=1))


def test_no_day_and_no_string_is_in_two_splits(dates):
    examples = all_examples(dates)
    for name in ("source", "target"):
        values = {split: {example[name] for example in examples[split]} for split in SPLITS}
        assert all(values[one].isdisjoint(values[two]) for one in SPLITS for two in SPLITS if one != two)


def test_no_string_is_left_that_another_date_shares(dates):
    """Against every string that the languages can write."""
    days = [day for part in split_days(2000, 2003, 0).values() for day in part]
    assert len(set(days)) == 4 * 365 + 1
    meanings, written = defaultdict(set), []
    split_of_day = {day: split for split, part in split_days(2000, 2003, 0).items() for day in part}
    for language in LANGUAGES:
        for form in FORMS:
            for day in days:
                text = write(templates(language)[form, day.month, day.weekday()], day)
                meanings[text].add(day.isoformat())
                written.append((text, split_of_day[day]))
    for part in all_examples(dates).values():
        for example in part:
            assert meanings[example["source"]] == {example["target"]}
    ambiguous = Counter(split for text, split in written if len(meanings[text]) > 1)
    assert dates.info.metadata["ambiguous"] == {split: ambiguous[split] for split in SPLITS}
    assert sum(dates.info.metadata["combinations"].values()) == len(written)
    assert ambiguous.total() > 0


def test_every_language_has_its_share_of_every_form(dates):
    sizes = {"train": train_sizes(LANGUAGES, 90)} | {
        split: dict.fromkeys(LANGUAGES, size) for split, size in (("validation", 6), ("test", 9))
    }
    for split in SPLITS:
        examples = Examples(dates, split)[:]
        assert Counter(example["language"] for example in examples) == sizes[split]
        for language in LANGUAGES:
            forms = Counter(example["form"] for example in examples if example["language"] == language)
            assert set(forms) == set(FORMS) and max(forms.values()) - min(forms.values()) <= 1
        # Any prefix is balanced too: each language has its share of it.
        assert [example["language"] for example in examples[: len(LANGUAGES)]] == list(LANGUAGES)
        half = Counter(example["language"] for example in examples[: len(examples) // 2])
        assert all(abs(half[language] - sizes[split][language] / 2) <= 1 for language in LANGUAGES)
    columns = read_columns(dates, "train", ("language", "target"))
    days_of = defaultdict(list)
    for language, target in zip(columns["language"], columns["target"], strict=True):
        days_of[language].append(datetime.date.fromisoformat(target))
    for language, days in days_of.items():
        assert len(set(days)) == len(days) == sizes["train"][language]
        assert {day.month for day in days} == set(range(1, 13)) and {day.weekday() for day in days} == set(range(7))


def test_strange_months_have_more_training_examples():
    """Korean and English are well-known, Thai and Basque are not; the mean is what was asked for."""
    codes = languages()[0]
    sizes = train_sizes(codes, 600)
    assert sum(sizes.values()) == pytest.approx(600 * len(codes), rel=1e-3)
    assert STRANGE - 0.5 < max(sizes.values()) / min(sizes.values()) <= STRANGE
    assert sizes["en"] == min(sizes.values()) and sizes["th"] > sizes["eu"] > sizes["ko"] > sizes["zu"] > sizes["en"]


def test_what_was_left_out_is_kept_with_the_data_and_printed_once(tmp_path, capsys):
    built = small_dates(tmp_path)
    first = capsys.readouterr()
    again = small_dates(tmp_path)
    assert capsys.readouterr() == ("", "")
    assert first.err == "" and first.out.count("\n") == 1
    assert f"{sum(built.info.metadata['ambiguous'].values()):,} of" in first.out
    assert again.info.metadata == built.info.metadata


def test_another_babel_is_another_dataset():
    assert Dates.BUILDER_CONFIGS[0].name == f"babel-{babel.__version__}"


def test_too_few_days_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"ko has only .* unambiguous dates of the 466 wanted"):
        small_dates(tmp_path, last_year=2000, train_examples=500)
    with pytest.raises(ValueError, match="years must lie"):
        small_dates(tmp_path, first_year=999)


def test_reverse(tmp_path):
    config = ReverseConfig(name="small", train_examples=300, validation_examples=20, test_examples=30)
    builder = prepare_builder(Reverse, str(tmp_path), config)
    examples = all_examples(builder)
    assert [len(examples[split]) for split in SPLITS] == [300, 20, 30]
    everything = [example for part in examples.values() for example in part]
    assert len({example["source"] for example in everything}) == len(everything)
    for example in everything:
        assert example["target"] == example["source"][::-1] and example["source"].isdecimal()
    assert {len(example["source"]) for example in everything} == set(range(4, 13))
    assert files(builder) == files(prepare_builder(Reverse, str(tmp_path / "again"), config))


def test_stdlib_takes_sources_and_counts_what_does_not_decode(tmp_path):
    root = tmp_path / "lib"
    good = {f"module{n}.py": f"x = {n}\r\n" for n in range(60)} | {"package/한글.py": "# 안녕\u2028\n"}
    for name, text in good.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text.encode())
    (root / "latin.py").write_bytes("# é".encode("latin-1"))
    for left_out in ("site-packages/a.py", "test/b.py", "pkg/tests/c.py", "__pycache__/d.py", "_sysconfigdata_x.py"):
        (root / left_out).parent.mkdir(parents=True, exist_ok=True)
        (root / left_out).write_text("no")
    (root / "notes.txt").write_text("no")

    builder = prepare_builder(Stdlib, str(tmp_path / "data"), StdlibConfig(name="small", root=str(root)))
    assert builder.info.metadata["not_utf8"] == ["latin.py"]
    examples = all_examples(builder)
    found = {example["path"]: example["text"] for part in examples.values() for example in part}
    assert found == {name: text.replace("\r\n", "\n") for name, text in good.items()}
    for split, part in examples.items():
        assert {split_of(example["path"]) for example in part} == {split}


def test_stdlib_is_the_real_one():
    import sysconfig

    sources, _ = read_sources(Path(sysconfig.get_path("stdlib")))
    assert "argparse.py" in sources and "json/decoder.py" in sources and "pydoc_data/topics.py" not in sources
    assert not [path for path in sources if "site-packages" in path or "/test/" in path]
    assert sum(map(len, sources.values())) > 5e6
    assert any("lambda" in text for text in read_topics().values())
    shares = Counter(map(split_of, map(str, range(10_000))))
    assert abs(shares["train"] - 9000) < 200 and abs(shares["test"] - 500) < 100


def test_an_unknown_name_is_refused_with_the_near_one():
    with pytest.raises(ValueError, match=r"unknown dataset 'date': .*reverse.*; perhaps you meant dates"):
        prepare("date")


def test_every_registered_name_is_the_builder_of_that_name():
    import importlib

    for name, place in preparing.BUILDERS.items():
        module, builder_class = place.split(":")
        assert getattr(importlib.import_module(module), builder_class).name == name


def test_when_another_process_was_faster_its_data_are_used(tmp_path, monkeypatch):
    config = ReverseConfig(name="small", train_examples=30, validation_examples=2, test_examples=2)
    original = Reverse.download_and_prepare

    def slow(self, *arguments, **options):
        monkeypatch.setattr(Reverse, "download_and_prepare", original)
        prepare_builder(Reverse, str(tmp_path), config)
        raise OSError("Directory not empty")

    monkeypatch.setattr(Reverse, "download_and_prepare", slow)
    assert len(Examples(prepare_builder(Reverse, str(tmp_path), config), "train")) == 30


def test_a_failed_preparation_is_not_hidden(tmp_path, monkeypatch):
    def fail(self, *arguments, **options):
        raise OSError("No space left on device")

    monkeypatch.setattr(Reverse, "download_and_prepare", fail)
    with pytest.raises(ValueError, match=r"cannot prepare data in .*: No space left on device"):
        prepare_builder(Reverse, str(tmp_path), ReverseConfig(name="small"))


def test_columns_are_the_examples(dates):
    columns = read_columns(dates, "validation", ("source", "language"))
    examples = Examples(dates, "validation")
    assert columns["source"] == [example["source"] for example in examples]
    assert columns["language"] == [example["language"] for example in examples]
    assert examples[-1] == examples[len(examples) - 1] and examples[1:3] == [examples[1], examples[2]]
    with pytest.raises(IndexError):
        examples[len(examples)]
    with pytest.raises(ValueError, match="no split 'dev': there are train, validation, test"):
        Examples(dates, "dev")


def test_no_tensorflow(tmp_path):
    """Where TensorFlow is installed (here: a stand-in that would fail), it must not be loaded either."""
    stand_in = tmp_path / "installed" / "tensorflow"
    stand_in.mkdir(parents=True)
    (stand_in / "__init__.py").write_text("raise SystemExit('tensorflow was imported')")
    program = """
import sys
import data.config
assert not {"tensorflow_datasets", "grain", "jax"} & set(sys.modules)
from data.loading import load
data = load(data.config.DataConfig("reverse", 4, directory=sys.argv[1]))
next(data.train_batches(0)), next(data.eval_batches("test")), data.examples("test")[0]
assert not [name for name in sys.modules if name.split(".")[0] == "tensorflow"]
"""
    root = Path(preparing.__file__).parents[1]
    path = os.pathsep.join([str(root), str(stand_in.parent)])
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "data")],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
