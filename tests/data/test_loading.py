"""Batches: what is in them, that nothing is missing, and that position alone decides which they are."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from data.config import DataConfig
from data.datasets.reverse import Reverse, ReverseConfig
from data.prepare import prepare_builder
from data.sequences import encode
from data.tokenizers.base import BOS, EOS, PAD, UNK
from data.tokenizers.characters import CharacterTokenizer
from tests.data.in_memory import builder_of, load_from

PAIRS = {
    "train": [("ab", "x"), ("", "yy"), ("abcde", ""), ("c\n", "xyx"), ("b", "y"), ("a</s>", "y"), ("e", "yxyxy")],
    "validation": [("abc", "x"), ("Q", "yZ"), ("abcdeabcde", "xyxyxyxy"), ("", "")],
    "test": [],
}
TEXTS = {"train": ["abc", "", "dde\n", "a" * 13], "validation": ["ab", "cde", "a"], "test": ["?"]}
CONFIG = DataConfig(source="in memory", batch_size=3, max_source_length=0, max_target_length=0)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    return builder_of(tmp_path_factory.mktemp("pairs"), PAIRS, ("source", "target"))


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return builder_of(tmp_path_factory.mktemp("text"), TEXTS, ("text",))


@pytest.fixture(scope="module")
def reverse(tmp_path_factory):
    config = ReverseConfig(name="small", train_examples=100, validation_examples=10, test_examples=10)
    return load_from(
        prepare_builder(Reverse, str(tmp_path_factory.mktemp("reverse")), config), replace(CONFIG, batch_size=7)
    )


def flat(batch):
    return {**batch["inputs"], **{name: value for name, value in batch.items() if name != "inputs"}}


def same(one, two):
    one, two = flat(one), flat(two)
    return one.keys() == two.keys() and all(np.array_equal(one[name], two[name]) for name in one)


def stacked(batches):
    batches = [flat(batch) for batch in batches]
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def test_a_batch_spelt_out(pairs):
    data = load_from(pairs, CONFIG)
    s, t = data.tokenizers["source"].encode, data.tokenizers["target"].encode
    assert (data.max_source_length, data.max_target_length) == (6, 6)  # the longest of training and its EOS
    batch = next(data.eval_batches("train"))
    assert batch["inputs"]["source"].tolist() == [
        [*s("ab"), EOS, PAD, PAD, PAD],
        [EOS, PAD, PAD, PAD, PAD, PAD],
        [*s("abcde"), EOS],
    ]
    assert batch["inputs"]["target"].tolist() == [
        [BOS, *t("x"), PAD, PAD, PAD, PAD],
        [BOS, *t("yy"), PAD, PAD, PAD],
        [BOS, PAD, PAD, PAD, PAD, PAD],
    ]
    assert batch["labels"].tolist() == [
        [*t("x"), EOS, PAD, PAD, PAD, PAD],
        [*t("yy"), EOS, PAD, PAD, PAD],
        [EOS, PAD, PAD, PAD, PAD, PAD],
    ]
    # EOS must be learned, PAD must not.
    assert batch["loss_mask"].tolist() == (batch["labels"] != PAD).tolist()
    assert batch["loss_mask"].sum() == 2 + 3 + 1
    for array in (batch["inputs"]["source"], batch["inputs"]["target"], batch["labels"]):
        assert array.dtype == np.int32
    assert batch["loss_mask"].dtype == np.bool_


@pytest.mark.parametrize("batch_size", [1, 2, 3, 4, 7, 10])
def test_evaluation_sees_every_example_once_whatever_the_batch_size(pairs, batch_size):
    data = load_from(pairs, CONFIG)
    for split in ("train", "validation"):
        n = data.num_examples(split)
        batches = list(data.eval_batches(split, batch_size))
        assert {batch["labels"].shape for batch in batches} == {(batch_size, data.max_target_length)}
        rows, one_by_one = stacked(batches), stacked(data.eval_batches(split, 1))
        assert rows.pop("rows").tolist() == [*range(n), *[-1] * (len(batches) * batch_size - n)]
        for name, values in rows.items():
            assert np.array_equal(values[:n], one_by_one[name])
            assert not values[n:].any()  # PAD, and no weight


def test_evaluation_is_in_the_order_of_the_examples(pairs):
    data = load_from(pairs, CONFIG)
    labels = stacked(data.eval_batches("train"))["labels"]
    for row, example in zip(labels, data.examples("train"), strict=False):
        assert data.tokenizers["target"].decode(row) == example["target"]
    assert [tuple(example.values()) for example in data.examples("train")] == PAIRS["train"]


def test_what_is_unknown_or_too_long_is_counted(pairs, capsys):
    data = load_from(pairs, CONFIG)
    assert capsys.readouterr().out.splitlines() == [
        "given, validation: 1 tokens of source are unknown",
        "given, validation: 1 tokens of target are unknown",
        "given, validation: 1 of 4 examples are longer than 6 source or 6 target tokens and are cut",
    ]
    rows = stacked(data.eval_batches("validation"))
    s, t = data.tokenizers["source"].encode, data.tokenizers["target"].encode
    assert rows["source"][1].tolist() == [UNK, EOS, PAD, PAD, PAD, PAD]
    assert rows["source"][2].tolist() == [*s("abcde"), EOS]
    assert rows["labels"][2].tolist() == [*t("xyxyxy")]  # it has not ended
    assert rows["target"][2].tolist() == [BOS, *t("xyxyx")]
    assert rows["loss_mask"][2].all()


def test_training_leaves_out_what_is_too_long_and_says_so(pairs, capsys):
    data = load_from(pairs, replace(CONFIG, max_source_length=4, max_target_length=4, batch_size=2))
    assert "given, train: 3 of 7 examples are longer than 4 source or 4 target tokens and are left out" in (
        capsys.readouterr().out
    )
    assert data.num_train_examples == 4 and data.num_examples("train") == 7
    epoch = stacked(itertools.islice(data.train_batches(0), 2))
    decode = data.tokenizers["source"].decode
    assert sorted(decode(row) for row in epoch["source"]) == sorted(["ab", "", "c\n", "b"])


def test_every_training_example_comes_once_in_an_epoch(reverse):
    batches = itertools.islice(reverse.train_batches(3), 45)  # 3 epochs of 100 in batches of 7
    texts = [
        [reverse.tokenizers["source"].decode(row) for row in batch["inputs"]["source"] if row.any()]
        for batch in batches
    ]
    expected = sorted(example["source"] for example in reverse.examples("train"))
    epochs = [list(itertools.chain.from_iterable(texts[start : start + 15])) for start in (0, 15, 30)]
    assert all(sorted(epoch) == expected for epoch in epochs)
    assert len(set(map(tuple, epochs))) == 3
    assert {len(batch) for batch in texts} == {6, 7}  # 105 rows for 100 examples, and none is left out


def test_starting_anywhere_is_going_on(reverse):
    whole = list(itertools.islice(reverse.train_batches(3), 40))
    for start in (0, 1, 13, 14, 15, 33):
        rest = itertools.islice(reverse.train_batches(3, start), 40 - start)
        assert all(same(one, two) for one, two in zip(whole[start:], rest, strict=True))
    assert not same(whole[0], next(reverse.train_batches(4)))


def test_source_and_target_stay_together(reverse):
    for batch in itertools.islice(reverse.train_batches(0), 5):
        for source, labels in zip(batch["inputs"]["source"], batch["labels"], strict=True):
            text = reverse.tokenizers["source"].decode(source)
            assert reverse.tokenizers["target"].decode(labels) == text[::-1]


@pytest.mark.parametrize("length", [1, 2, 5, 24, 25, 100])
def test_text_is_one_stream_every_token_predicted_once(text, length):
    data = load_from(text, replace(CONFIG, max_target_length=length, batch_size=1))
    encode_text = data.tokenizers["text"].encode
    for split, documents in TEXTS.items():
        stream = [n for document in documents for n in [*encode_text(document).tolist(), EOS]]
        for batch_size in (1, 2, 5):
            rows = stacked(data.eval_batches(split, batch_size))
            assert rows["labels"].shape[1] == length
            assert rows["labels"][rows["loss_mask"]].tolist() == stream
            assert rows["tokens"][rows["loss_mask"]].tolist() == [EOS, *stream[:-1]]
            assert not rows["tokens"][~rows["loss_mask"]].any() and not rows["labels"][~rows["loss_mask"]].any()
        assert data.num_examples(split) == -(-len(stream) // length)
    epoch = stacked(itertools.islice(data.train_batches(0), data.num_train_examples))
    assert epoch["loss_mask"].sum() == len([n for document in TEXTS["train"] for n in [*document, EOS]])


def test_tokenizers_are_of_the_training_split_and_go_with_the_run(pairs, text, tmp_path):
    for builder, config in ((pairs, CONFIG), (text, replace(CONFIG, max_target_length=4))):
        data = load_from(builder, config)
        place = tmp_path / "-".join(data.tokenizers)
        data.save_tokenizers(place)
        side = "target" if builder is pairs else "text"
        assert set(data.vocab_sizes) == set(data.tokenizers)
        assert UNK in data.tokenizers[side].encode("Z?")
        again = load_from(builder, config, tokenizers_from=place)
        assert again.vocab_sizes == data.vocab_sizes
        assert all(map(same, again.eval_batches("validation"), data.eval_batches("validation")))
        if builder is pairs:
            # Those of the run are used, not trained anew: with another vocabulary the same text has other ids.
            CharacterTokenizer.train(["\0abcdexyz</s>\n"]).save(place / "tokenizer_source.json")
            other = load_from(builder, config, tokenizers_from=place)
            assert other.vocab_sizes["source"] != data.vocab_sizes["source"]


class Wrong:
    """A tokenizer with one bad id."""

    vocab_size = 10

    def __init__(self, bad):
        self.bad = bad

    def encode_batch(self, texts):
        lengths = np.array([len(text) for text in texts])
        ids = np.full(lengths.sum(), 5, type(self.bad))
        ids[3] = self.bad  # the first of its sentence, right behind an empty one
        return ids, lengths


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (10, "some data: example 2 has id 10, which is outside the vocabulary of 10"),
        (-1, "some data: example 2 has id -1, which is outside the vocabulary of 10"),
        (PAD, "some data: example 2 has id 0, which is reserved"),
        (EOS, "some data: example 2 has id 2, which is reserved"),
        (5.0, "some data: ids must be integers, not float64"),
    ],
)
def test_an_id_that_a_model_would_swallow_is_refused(bad, message):
    with pytest.raises(ValueError, match=message):
        encode(Wrong(bad), ["abc", "", "def", "g"], "some data")
    encode(Wrong(9), ["abc", "", "def", "g"], "some data")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 8}, "batch_size must be between 1 and the number of training examples of given, 7, not 8"),
        ({"max_source_length": 1, "max_target_length": 1}, "given has no examples to train on"),
    ],
)
def test_training_that_cannot_be(pairs, change, message):
    with pytest.raises(ValueError, match=message):
        load_from(pairs, replace(CONFIG, **change)).train_batches(0)


def test_requests_that_cannot_be(pairs, text, tmp_path):
    data = load_from(pairs, CONFIG)
    for split in ("dev", "test"):
        with pytest.raises(ValueError, match=f"no split '{split}': there are train, validation"):
            data.eval_batches(split)
    with pytest.raises(ValueError, match="batch_size must be at least 1, not 0"):
        data.eval_batches("train", 0)
    with pytest.raises(ValueError, match="must not be negative, but is -1"):
        data.train_batches(0, start=-1)
    with pytest.raises(ValueError, match="max_target_length"):
        load_from(text, CONFIG)
    with pytest.raises(ValueError, match="has features left, right; wanted: source and target, or text"):
        load_from(builder_of(tmp_path, PAIRS, ("left", "right")), CONFIG)


@pytest.mark.parametrize("name", ["batch_size", "max_source_length", "max_target_length"])
def test_config_values(name):
    with pytest.raises(ValueError, match=f"{name} must be at least ., not -1"):
        replace(CONFIG, **{name: -1})
    with pytest.raises(TypeError, match=f"{name} must be an integer, not 1.5"):
        replace(CONFIG, **{name: 1.5})
