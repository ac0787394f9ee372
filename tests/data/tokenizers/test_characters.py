"""The character tokenizer: exact round trips, exact refusals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.tokenizers.base import BOS, EOS, NUM_SPECIAL, PAD, UNK
from data.tokenizers.characters import CharacterTokenizer

AWKWARD = ["a\nb\r\n", "\u2028", "\0", "e\u0301", "\u00e9", "</s><pad>", "  \t ", "\ufeff", "\ufffd", "\U0001f600", ""]
anything = st.text(st.characters(exclude_categories=()))  # lone surrogates too


@given(st.lists(anything))
def test_known_text_comes_back_exactly(texts):
    texts = texts + AWKWARD
    tokenizer = CharacterTokenizer.train(texts)
    for text in texts:
        ids = tokenizer.encode(text)
        assert ids.dtype == np.int32 and len(ids) == len(text)
        assert (ids >= NUM_SPECIAL).all()  # nothing in a text is a special token
        assert tokenizer.decode(ids) == text


@given(st.lists(anything))
def test_a_batch_is_its_texts_one_by_one(texts):
    tokenizer = CharacterTokenizer.train(texts[::2])
    ids, lengths = tokenizer.encode_batch(texts)
    assert lengths.tolist() == [len(text) for text in texts]
    assert ids.tolist() == [n for text in texts for n in tokenizer.encode(text).tolist()]


@given(st.lists(anything))
def test_saved_and_loaded_is_the_same(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    # A high and a low surrogate are neighbours in this vocabulary: they must not fuse in the file.
    tokenizer = CharacterTokenizer.train([*texts, *AWKWARD, "\udbff", "\udc00"])
    tokenizer.save(path)
    assert CharacterTokenizer.load(path).characters == tokenizer.characters


def test_ids_do_not_depend_on_the_order_of_texts():
    assert CharacterTokenizer.train(["ba", "c"]).characters == CharacterTokenizer.train(["c", "a", "b"]).characters


def test_the_special_ids():
    assert (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)
    tokenizer = CharacterTokenizer.train(["ab"])
    assert tokenizer.vocab_size == 6
    assert tokenizer.encode("axb").tolist() == [4, UNK, 5]
    assert tokenizer.decode([BOS, 4, UNK, 5, EOS, PAD, PAD]) == "a\ufffdb"
    assert tokenizer.decode(np.array([], np.int32)) == ""


@pytest.mark.parametrize("bad", [-1, 6])
def test_an_id_outside_the_vocabulary_is_named(bad):
    with pytest.raises(ValueError, match=f"id {bad} is outside the vocabulary of 6"):
        CharacterTokenizer.train(["ab"]).decode([4, bad])


def test_ids_are_integers():
    with pytest.raises(TypeError, match="float"):
        CharacterTokenizer.train(["ab"]).decode([4.0])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"type": "characters", "charac',
        b"[]",
        b"\xff\xfe",
        b'{"type": "bpe"}',
        b'{"type": "characters"}',
        b'{"type": "characters", "characters": ["ab"]}',
        b'{"type": "characters", "characters": ["a", "a"]}',
        b'{"type": "characters", "characters": [1]}',
    ],
)
def test_a_damaged_or_foreign_file_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is not a character tokenizer") as error:
        CharacterTokenizer.load(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)
