"""Which files are meant: the names that corpora come with, unchanged."""

import os

import pytest

from data.sources.file_discovery import WHOLE, corpus_files
from data.sources.grammar import parse_source

MULTI30K = [
    f"{split}.{language}.gz"
    for split in ("train", "val", "test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")
    for language in ("de", "en")
]
BPE = [
    "code.gz",
    *(f"{s}.{x}.gz" for s in ("train", "valid", "test.2016", "test.2017", "test.coco") for x in ("de", "en")),
]


def found(tmp_path, names, source):
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x\n")
    kind, _, rest = source.partition(":")
    files, languages = corpus_files(parse_source(f"{kind}:{tmp_path}/{rest}"))
    names = {split: tuple(str(p.relative_to(tmp_path)) for p in paths) for split, paths in files.items()}
    return (names, languages) if kind == "parallel" else names


@pytest.mark.parametrize(
    ("names", "source", "wanted"),
    [
        (
            ["kor_train.tsv", "kor_dev.tsv", "kor_test.tsv", "README.md", "training.md"],
            "tsv:kor",
            {"train": ("kor_train.tsv",), "validation": ("kor_dev.tsv",), "test": ("kor_test.tsv",)},
        ),
        (["kor_train.tsv", "korean_train.tsv"], "tsv:kor", {"train": ("kor_train.tsv",)}),
        (["kor_train.tsv", "kor_dev.tsv"], "tsv:", {"train": ("kor_train.tsv",), "validation": ("kor_dev.tsv",)}),
        (
            ["g014b2b.train.gz", "g014b2b.test.gz"],
            "tsv:g014b2b",
            {"train": ("g014b2b.train.gz",), "test": ("g014b2b.test.gz",)},
        ),
        (["kor.txt"], "tsv:kor.txt:2-1", {WHOLE: ("kor.txt",)}),
        (
            ["a.train.txt", "a.valid.txt", "a.test.txt", "b.txt"],
            "text:a",
            {"train": ("a.train.txt",), "validation": ("a.valid.txt",), "test": ("a.test.txt",)},
        ),
        (
            ["wiki.train.tokens", "wiki.valid.tokens"],
            "text:",
            {"train": ("wiki.train.tokens",), "validation": ("wiki.valid.tokens",)},
        ),
        (
            ["train/b.py", "train/a/z.txt", "train/.hidden", "test/c"],
            "text:",
            {"train": ("train/a/z.txt", "train/b.py"), "test": ("test/c",)},
        ),
        (
            MULTI30K,
            "parallel:",
            (
                {
                    "train": ("train.de.gz", "train.en.gz"),
                    "validation": ("val.de.gz", "val.en.gz"),
                    "test_2016_flickr": ("test_2016_flickr.de.gz", "test_2016_flickr.en.gz"),
                    "test_2017_flickr": ("test_2017_flickr.de.gz", "test_2017_flickr.en.gz"),
                    "test_2017_mscoco": ("test_2017_mscoco.de.gz", "test_2017_mscoco.en.gz"),
                },
                ("de", "en"),
            ),
        ),
        (
            BPE,
            "parallel::en-de",
            (
                {
                    "train": ("train.en.gz", "train.de.gz"),
                    "validation": ("valid.en.gz", "valid.de.gz"),
                    "test_2016": ("test.2016.en.gz", "test.2016.de.gz"),
                    "test_2017": ("test.2017.en.gz", "test.2017.de.gz"),
                    "test_coco": ("test.coco.en.gz", "test.coco.de.gz"),
                },
                ("en", "de"),
            ),
        ),
        (["europarl.de-en.en", "europarl.de-en.de"], "parallel:europarl.de-en:en-de", None),
        (["x.train.ko", "x.train.en", "x.train.fr"], "parallel:x:fr-ko", None),
    ],
)
def test_found(tmp_path, names, source, wanted):
    result = found(tmp_path, names, source)
    if wanted is None:
        files, languages = result
        assert all(path.endswith(language) for path, language in zip(next(iter(files.values())), languages))
    else:
        assert result == wanted
        files = result[0] if isinstance(result, tuple) else result
        assert next(iter(files)) in ("train", WHOLE)


def test_named_one_by_one(tmp_path):
    for name in ("a", "b", "c", "n.en", "n.de", "m.en", "m.de"):
        (tmp_path / name).write_text("x\n")
    at = str(tmp_path)
    files, _ = corpus_files(parse_source(f"tsv:{at}/a+{at}/c+{at}/b"))
    assert {split: paths[0].name for split, paths in files.items()} == {"train": "a", "validation": "c", "test": "b"}
    files, _ = corpus_files(parse_source(f"parallel:{at}/n+{at}/m:en-de"))
    assert files["validation"] == (tmp_path / "m.en", tmp_path / "m.de") and set(files) == {"train", "validation"}
    (tmp_path / "c++").write_text("x\n")
    assert corpus_files(parse_source(f"text:{at}/c++"))[0] == {WHOLE: (tmp_path / "c++",)}


@pytest.mark.parametrize(
    ("names", "source", "complaint"),
    [
        ([], "tsv:nowhere/x", "nowhere/x is no file, and no directory or beginning"),
        (["test.tsv"], "tsv:", "wanted is, for example, {at}/train.tsv"),
        (["x.test.en", "x.test.de"], "parallel:x", "wanted is, for example, {at}/x.train.en"),
        (["a.train.txt", "b.train.txt"], "text:", "several corpora, 'a.', 'b.': name one of them"),
        (["train.tsv", "valid.tsv", "dev.tsv"], "tsv:", "both {at}/dev.tsv and {at}/valid.tsv could be meant"),
        (["train.tsv", "train.tsv.gz"], "tsv:", "both {at}/train.tsv and {at}/train.tsv.gz could be meant"),
        (["train.en"], "parallel:", "in en; name two, as in parallel:{at}/:en-de"),
        (["train.en", "train.de", "train.fr"], "parallel:", "in de, en, fr; name two"),
        (["train.en", "train.de", "test.en"], "parallel:", "{at}/test.en has no counterpart in de"),
        (["a"], "tsv:a+nowhere", "there is no file nowhere"),
        (["a"], "tsv:a+b+c+d", "names 4 splits"),
        (["n.en", "n.de", "m.en"], "parallel:n+m", "there are no two files m.LANGUAGE"),
    ],
)
def test_not_found(tmp_path, names, source, complaint, monkeypatch):
    if "+" in source:
        monkeypatch.chdir(tmp_path)
        for name in names:
            (tmp_path / name).write_text("x\n")
        with pytest.raises(ValueError) as error:
            corpus_files(parse_source(source))
    else:
        with pytest.raises(ValueError) as error:
            found(tmp_path, names, source)
    assert complaint.replace("{at}", str(tmp_path)) in str(error.value).replace("//", "/")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["x.tsv", "x/train.tsv", "x/train/a.txt", "x.train.en"])
def test_a_pipe_is_never_opened_and_a_dead_link_is_named(tmp_path, name):
    """Opening a pipe would wait for ever."""
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "x.train.de").write_text("x")
    source = {"x.train.en": f"parallel:{tmp_path}/x", "x.tsv": f"tsv:{file}", "x/train/a.txt": f"text:{tmp_path}/x"}
    source = parse_source(source.get(name, f"tsv:{tmp_path}/x"))
    for make, what in (
        (os.mkfifo, "a pipe or a device"),
        (lambda path: path.symlink_to("gone"), "a link to gone, which is not there"),
    ):
        make(file)
        with pytest.raises(ValueError) as error:
            corpus_files(source)
        assert str(error.value) == f"cannot read {file}: it is {what}"
        file.unlink()
