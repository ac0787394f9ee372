"""Every tokenizer keeps the promise it states, for any text; none takes the spelling of a special token for one."""

import json
import os
import subprocess
import sys
import unicodedata
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tokenizers as tokenizers_library
from hypothesis import given, settings
from hypothesis import strategies as st

from data.config import DataConfig
from data.loading import load
from data.sequences import encode
from data.tokenizers.base import BOS, EOS, NUM_SPECIAL, PAD, UNK
from data.tokenizers.bpe import SubwordTokenizer
from data.tokenizers.bytes import ByteTokenizer
from data.tokenizers.characters import CharacterTokenizer
from data.tokenizers.factory import load_tokenizer, make_tokenizers
from data.tokenizers.words import WordTokenizer

ROOT = Path(__file__).resolve().parents[3]
AWKWARD = [
    "",
    " ",
    "a\nb\r\n\r",
    "\u2028\u2029\x85",
    "\0",
    "e\u0301 \u00e9 \u212b",
    "</s><pad> <unk><s>[UNK]",
    "  two  spaces\t ",
    "\ufeff\ufffd",
    "\U0001f600",
    "한글 각\u11a8",
    "a@@ b c@@",
    "@@ @@",
    "\u00a0x\u00a0y",
    "\ud800",
    "\udbff\udc00",
]
KINDS = ("characters", "bytes", "bpe", "pretokenized")
anything = st.lists(st.text(st.characters(exclude_categories=())), max_size=8)  # lone surrogates too
CORPUS = ["the theory of the thing", "ein Ding, ein Haus", "각각의 나라", "x@@ y z"] * 5
CONFIG = DataConfig(source="in memory", batch_size=2, vocab_size=300)


def trained(kind, texts, normalization="none"):
    config = replace(CONFIG, tokenizer=kind, normalization=normalization, vocab_size=300 if kind == "bpe" else 0)
    return make_tokenizers(config, {"text": texts})["text"]


FIXED = {kind: trained(kind, CORPUS) for kind in ("bytes", "bpe")}


@pytest.mark.parametrize("normalization", ["none", "NFC", "NFD"])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20)
@given(texts=anything)
def test_the_promise(kind, normalization, texts):
    texts = texts + AWKWARD
    tokenizer = trained(kind, texts, normalization)
    for text in texts:
        ids = tokenizer.encode(text)
        assert ids.dtype == np.int32 and ((ids >= NUM_SPECIAL) & (ids < tokenizer.vocab_size)).all()
        assert tokenizer.decode([BOS, *ids, EOS, PAD]) == tokenizer.canonical(text)
        if kind != "pretokenized" or "@@" not in text:
            assert tokenizer.encode(tokenizer.decode(ids)).tolist() == ids.tolist()
        # What canonical is, said another way.
        normal = text if normalization == "none" else unicodedata.normalize(normalization, text)
        if kind in ("characters", "bytes"):
            assert tokenizer.canonical(text) == normal
        elif kind == "bpe":
            assert tokenizer.canonical(text) == "".join("\ufffd" if "\ud800" <= x <= "\udfff" else x for x in normal)
        elif normal.isascii() and normal.isprintable() and "@@" not in normal:
            assert tokenizer.canonical(text) == " ".join(normal.split())


@pytest.mark.parametrize("kind", ["bytes", "bpe"])
@given(text=st.text(st.characters(exclude_categories=("Cs",))))
def test_bytes_and_bpe_know_every_text(kind, text):
    tokenizer = FIXED[kind]
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_its_texts_one_by_one(kind):
    tokenizer = trained(kind, CORPUS, "NFC")
    # The second begins with a mark that would combine with the end of the first.
    texts = ["e", "\u0301", *AWKWARD, *CORPUS]
    ids, lengths = tokenizer.encode_batch(texts)
    assert lengths.dtype == np.int64 and lengths.tolist() == [len(tokenizer.encode(text)) for text in texts]
    assert ids.dtype == np.int32 and ids.tolist() == [n for text in texts for n in tokenizer.encode(text).tolist()]
    assert [array.tolist() for array in tokenizer.encode_batch([])] == [[], []]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("normalization", ["NFC", "NFD"])
def test_composed_or_not_makes_no_difference(kind, normalization, tmp_path):
    # H15; and the setting is stored with the vocabulary.
    tokenizer = trained(kind, ["한국어 é"], normalization)
    tokenizer.save(tmp_path / "x.json")
    for one in (tokenizer, load_tokenizer(tmp_path / "x.json")):
        ids = [one.encode(unicodedata.normalize(form, "한국 é")).tolist() for form in ("NFC", "NFD")]
        assert ids[0] == ids[1]


def test_jamo():
    tokenizer = trained("characters", ["각"], "NFD")
    assert tokenizer.characters == ("\u1100", "\u1161", "\u11a8")
    assert tokenizer.decode(tokenizer.encode("각")) == "\u1100\u1161\u11a8"
    assert tokenizer.encode("가").tolist() == tokenizer.encode("각").tolist()[:2]  # a syllable never seen, known parts


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded_is_the_same(kind, tmp_path):
    tokenizer = trained(kind, CORPUS + AWKWARD, "NFD")
    tokenizer.save(tmp_path / "x.json")
    again = load_tokenizer(tmp_path / "x.json")
    assert type(again) is type(tokenizer) and again.vocab_size == tokenizer.vocab_size
    assert again.encode_batch(CORPUS + AWKWARD)[0].tolist() == tokenizer.encode_batch(CORPUS + AWKWARD)[0].tolist()
    again.save(tmp_path / "y.json")
    assert (tmp_path / "x.json").read_bytes() == (tmp_path / "y.json").read_bytes()
    assert type(tokenizer).load(tmp_path / "x.json").vocab_size == tokenizer.vocab_size


def test_training_bpe_twice_gives_the_same(tmp_path):
    program = (
        "import sys; from data.tokenizers.bpe import SubwordTokenizer; "
        f"SubwordTokenizer.train({CORPUS!r}, 300).save(sys.argv[1])"
    )
    for name in ("x", "y"):
        environment = os.environ | {"PYTHONHASHSEED": str(ord(name))}
        subprocess.run([sys.executable, "-c", program, str(tmp_path / name)], cwd=ROOT, env=environment, check=True)
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes()


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"\xff", b'{"type": "x"}', b'{"type": "bpe"}', b'{"type": "bpe", "tokenizer": {}}'],
)
def test_a_file_that_is_no_tokenizer(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is not a tokenizer") as error:
        load_tokenizer(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("words", [["a b"], [""], ["a", "a"], [1]])
def test_words_that_are_none(words):
    with pytest.raises(ValueError, match="a vocabulary"):
        WordTokenizer(words)


@pytest.mark.parametrize("tokenizer", [ByteTokenizer(), trained("bpe", CORPUS), trained("pretokenized", CORPUS)])
def test_ids_that_are_none(tokenizer):
    for bad in (-1, tokenizer.vocab_size):
        with pytest.raises(ValueError, match=f"id {bad} is outside the vocabulary of {tokenizer.vocab_size}"):
            tokenizer.decode([4, bad])
    with pytest.raises(TypeError, match="float"):
        tokenizer.decode([4.0])
    assert tokenizer.decode([]) == tokenizer.decode([PAD, BOS, EOS]) == ""
    assert tokenizer.decode([UNK]) == "\ufffd"


def test_bytes_that_are_no_text():
    tokenizer = ByteTokenizer()
    cut = tokenizer.encode("한")[:2]
    assert tokenizer.decode([*tokenizer.encode("a"), *cut, UNK, *tokenizer.encode("b")]) == "a\ufffd\ufffdb"
    assert tokenizer.vocab_size == 260 and tokenizer.encode("\0\x7f").tolist() == [4, 131]


def test_words():
    tokenizer = WordTokenizer.train(["b a\tb  c@@", "c@@ b"])
    assert tokenizer.words == ("b", "c@@", "a")
    assert tokenizer.encode("  c@@ a z ").tolist() == [5, 6, UNK]
    assert tokenizer.decode([5, 6, UNK, 5]) == "ca \ufffd c"
    assert WordTokenizer.train(["b a\tb  c@@", "c@@ b"], vocab_size=6).words == ("b", "c@@")
    with pytest.raises(ValueError, match="vocab_size must be more than 4, not 4"):
        WordTokenizer.train(["a"], vocab_size=4)


def test_bpe_learns_from_frequent_words_and_keeps_to_its_size():
    tokenizer = SubwordTokenizer.train(CORPUS, 280)
    assert tokenizer.vocab_size == 280 and len(tokenizer.encode(" ein")) < 4
    assert SubwordTokenizer.train(["ab"], 8000).vocab_size == 4 + 256 + 1  # no more to learn
    with pytest.raises(ValueError, match="vocab_size must be at least 260 for bpe, not 259"):
        SubwordTokenizer.train(CORPUS, 259)


def written(path, model, **changes):
    """A `tokenizer.json` as others make them: with special tokens, templates, truncation and padding."""
    import tokenizers

    tokenizer = tokenizers.Tokenizer(model)
    for name, value in changes.items():
        setattr(tokenizer, name, value)
    tokenizer.add_special_tokens(["<pad>", "<s>", "</s>"])
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>",
        special_tokens=[("<s>", tokenizer.token_to_id("<s>")), ("</s>", tokenizer.token_to_id("</s>"))],
    )
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding(length=9)
    tokenizer.save(str(path))
    return path


def test_an_existing_file_adds_nothing_cuts_nothing_and_splits_at_no_special_token(tmp_path):
    from tokenizers import decoders, models, pre_tokenizers

    alphabet = {x: n for n, x in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    path = written(
        tmp_path / "gpt.json",
        models.BPE(vocab=alphabet, merges=[]),
        pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoder=decoders.ByteLevel(),
    )
    config = replace(CONFIG, tokenizer_file=str(path))
    tokenizers = make_tokenizers(config, {"source": ["x"], "target": ["y"]})
    tokenizer = tokenizers["source"]
    assert tokenizers["target"] is tokenizer and tokenizer.vocab_size == 4 + 256 + 3
    for text in [*AWKWARD[:-2], "as long as one likes"]:
        ids = tokenizer.encode(text)
        assert len(ids) == len(text.encode()) and (ids < 4 + 256).all()
        assert tokenizer.decode(ids) == text
    tokenizer.save(tmp_path / "saved.json")
    path.unlink()  # the run needs it no more
    assert load_tokenizer(tmp_path / "saved.json").decode(ids) == text


def test_the_unknown_token_of_a_file_is_ours(tmp_path):
    from tokenizers import decoders, models, pre_tokenizers

    model = models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2, "c": 3}, unk_token="[UNK]")
    path = written(tmp_path / "x", model, pre_tokenizer=pre_tokenizers.Whitespace(), decoder=decoders.WordPiece())
    tokenizer = SubwordTokenizer.from_file(path)
    assert tokenizer.encode("ab zz c").tolist() == [4 + 1, 4 + 2, UNK, 4 + 3]
    assert tokenizer.decode([5, 6, UNK, 7]) == "ab\ufffdc"
    model = models.Unigram([("<unk>", 0.0), ("a", -1.0), ("</s>", 0.0)], unk_id=0)
    tokenizer = SubwordTokenizer.from_file(written(tmp_path / "y", model, decoder=decoders.Fuse()))
    assert tokenizer.encode("az").tolist() == [5, UNK]
    # A piece spelt like a special token is that piece, never EOS.
    assert EOS not in tokenizer.encode("a</s>") and tokenizer.decode(tokenizer.encode("a</s>")) == "a</s>"


def models_without_an_unknown_token():
    """Each kind, knowing a and b alone; BPE would drop what it does not know, the others raise."""
    from tokenizers import models

    return [
        models.BPE(vocab={"a": 0, "b": 1}, merges=[]),
        models.BPE(vocab={"a": 0, "b": 1}, merges=[], unk_token="<unk>"),  # which the vocabulary lacks
        models.BPE(vocab={"a": 0, "b": 1, "ab": 2}, merges=[("a", "b")], byte_fallback=True),
        models.WordPiece({"a": 0, "##b": 1, "b": 2}),
        models.WordLevel({"<unknown>": 0, "a": 1, "b": 2}),
        models.Unigram([("a", -1.0), ("b", -2.0)]),
    ]


@pytest.mark.parametrize("number", range(6))
def test_what_a_file_without_an_unknown_token_lacks_is_unknown_and_counted(number, tmp_path):
    from tokenizers import pre_tokenizers

    model = models_without_an_unknown_token()[number]
    path = written(tmp_path / "x.json", model, pre_tokenizer=pre_tokenizers.Whitespace())
    vocabulary = tokenizers_library.Tokenizer.from_file(str(path)).get_vocab(with_added_tokens=True)
    tokenizer = SubwordTokenizer.from_file(path)
    tokenizer.save(tmp_path / "saved.json")
    for each in (tokenizer, load_tokenizer(tmp_path / "saved.json")):
        assert each.vocab_size == 4 + len(vocabulary)  # none more than the file has
        a, b = 4 + vocabulary["a"], 4 + vocabulary["b"]
        assert each.encode("a ☃ b").tolist() == [a, UNK, b]
        assert each.encode("a b").tolist() == [a, b]
        assert UNK in each.encode("a☃b")
        assert "\ufffd" in each.decode(each.encode("a ☃ b"))
    assert encode(tokenizer, ["a ☃ b", "☃"], "x").num_unknown == 2


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "cannot read"),
        (b"{}", "is not a tokenizer.json"),
        (b"\xff", "is not a tokenizer.json"),
        (b"x", "is not a"),
    ],
)
def test_a_tokenizer_file_that_is_none(tmp_path, content, complaint):
    path = tmp_path / "given.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=complaint) as error:
        make_tokenizers(replace(CONFIG, tokenizer_file=str(path)), {"text": ["x"]})
    assert str(path) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("kind", KINDS)
def test_shared_or_separate(kind):
    texts = {"source": ["a b", "a"], "target": ["c"]}
    config = replace(CONFIG, tokenizer=kind)
    shared = make_tokenizers(replace(config, shared_vocabulary=True), texts)
    assert shared["source"] is shared["target"]
    assert UNK not in shared["source"].encode("c") and UNK not in shared["target"].encode("a b")
    separate = make_tokenizers(config, texts)
    assert (UNK in separate["target"].encode("a")) == (kind in ("characters", "pretokenized"))


def test_characters_to_words():
    config = replace(CONFIG, target_tokenizer="pretokenized", normalization="NFD")
    tokenizers = make_tokenizers(config, {"source": ["각"], "target": ["k a k̚"]})
    assert isinstance(tokenizers["source"], CharacterTokenizer) and isinstance(tokenizers["target"], WordTokenizer)
    assert len(tokenizers["source"].encode("각")) == len(tokenizers["target"].encode("k a k̚")) == 3


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"tokenizer": "words"}, "tokenizer must be one of characters, bytes, bpe, pretokenized, not 'words'"),
        ({"normalization": "NFKC"}, "normalization must be one of none, NFC, NFD, not 'NFKC'"),
        ({"target_tokenizer": ""}, "target_tokenizer must be one of same, "),
        ({"vocab_size": -1}, "vocab_size must be at least 0"),
        ({"target_tokenizer": "bytes", "shared_vocabulary": True}, "shared_vocabulary wants one tokenizer for both"),
        ({"target_tokenizer": "bytes", "tokenizer_file": "x"}, "tokenizer_file wants one tokenizer for both"),
    ],
)
def test_a_config_that_cannot_be(changes, complaint):
    with pytest.raises(ValueError, match=complaint):
        replace(CONFIG, **changes)


@pytest.fixture
def corpus(tmp_path):
    """A config of parallel text: two training pairs, and one whose words and characters they lack."""
    at = tmp_path / "corpus"
    at.mkdir()
    (at / "train.en").write_text("the house\nthe </s> mouse\n")
    (at / "train.de").write_text("das Haus\ndie Maus\n")
    (at / "valid.en").write_text("the cat\n")
    (at / "valid.de").write_text("die Katze\n")
    return DataConfig(
        source=f"parallel:{at}:en-de", batch_size=2, shared_vocabulary=True, directory=str(tmp_path / "prepared")
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_keeps_its_tokenizers(kind, corpus, tmp_path):
    data = load(replace(corpus, tokenizer=kind))
    # Trained on the training split only.
    assert (UNK in data.tokenizers["source"].encode("Katze")) == (kind in ("characters", "pretokenized"))
    with pytest.MonkeyPatch.context() as patch:  # killed between one side and the other
        patch.setattr("data.dataset.tokenizer_file", lambda place, side: place / ("x" if side == "source" else "no/x"))
        with pytest.raises(OSError):
            data.save_tokenizers(tmp_path / "run")
    assert not (tmp_path / "run").exists()
    data.save_tokenizers(tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()}
    data.save_tokenizers(tmp_path / "run")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()} == before
    assert json.loads((tmp_path / "run" / "tokenizer_source.json").read_text())["type"] == kind
    again = load(replace(corpus, tokenizer="characters"), tokenizers_from=tmp_path / "run")
    for one, other in zip(data.eval_batches("train"), again.eval_batches("train"), strict=True):
        assert np.array_equal(one["labels"], other["labels"])
    assert data.vocab_sizes["source"] == data.vocab_sizes["target"] == again.vocab_sizes["source"]


def test_shared_embeddings_fit_a_shared_vocabulary(corpus):
    import jax

    from model.config import TransformerConfig
    from model.transformer import Transformer

    data = load(replace(corpus, tokenizer="bpe"))
    config = TransformerConfig(
        d_model=8, num_heads=2, d_ff=8, num_encoder_layers=1, num_decoder_layers=1, embeddings="shared", max_length=64
    )
    model = Transformer(config, data.vocab_sizes["source"], data.vocab_sizes["target"])
    inputs = next(data.eval_batches("train"))["inputs"]
    shapes = jax.eval_shape(lambda inputs: model.init(jax.random.key(0), **inputs), inputs)
    assert shapes["params"]["embedding"]["table"].shape == (data.vocab_sizes["source"], 8)
