"""Pairs in buckets under a budget of tokens: static shapes, nothing lost, the file's order found again."""

import itertools
import random
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.config import DataConfig
from data.pairs import source_batches
from data.sequences import encode
from data.tokenizers.base import EOS, PAD
from tests.data.in_memory import builder_of, load_from
from training.eval_step import evaluate

CONFIG = DataConfig(source="in memory", tokens_per_batch=64, row_multiple=2, buckets=4)


def sentences(number, seed, longest=20):
    """Pairs with sides of very different length."""
    chosen = random.Random(seed)
    lengths = [(chosen.randint(0, longest), chosen.randint(0, longest)) for _ in range(number)]
    return [("".join(chosen.choices("abc", k=s)), "".join(chosen.choices("xyz", k=t))) for s, t in lengths]


SPLITS = {"train": sentences(97, 0), "validation": [*sentences(20, 1), ("a" * 30, "x"), ("b", "y" * 40)]}


@pytest.fixture(scope="module")
def builder(tmp_path_factory):
    return builder_of(tmp_path_factory.mktemp("pairs"), SPLITS, ("source", "target"))


@pytest.fixture(scope="module")
def data(builder):
    return load_from(builder, CONFIG)


def shape_of(batch):
    return (*batch["inputs"]["source"].shape, batch["inputs"]["target"].shape[1])


def pairs_in(data, batch):
    """The texts of a batch's rows; rows without example left out."""
    source, target = data.tokenizers["source"], data.tokenizers["target"]
    real = batch["loss_mask"].any(axis=1)
    return [
        (source.decode(x), target.decode(y))
        for x, y in zip(batch["inputs"]["source"][real], batch["labels"][real], strict=True)
    ]


def epoch(data, seed, number=0):
    """The batches of one epoch."""
    size = data.batches_per_epoch
    return list(itertools.islice(data.train_batches(seed, start=number * size), size))


@settings(max_examples=12)
@given(st.integers(1, 6), st.sampled_from([16, 50, 64, 300, 5000]), st.sampled_from([1, 2, 8]), st.integers(0, 5))
def test_every_batch_has_one_of_few_shapes_within_the_budget(builder, buckets, budget, multiple, seed):
    data = load_from(builder, replace(CONFIG, buckets=buckets, tokens_per_batch=budget, row_multiple=multiple))
    assert len(set(data.shapes)) == len(data.shapes) <= buckets
    assert [shape_of(blank) for blank in data.blank_batches()] == list(data.shapes)
    for rows, source, target in data.shapes:
        assert rows % multiple == 0 and (rows == multiple or rows * max(source, target) <= budget)
    seen = []
    for batch in epoch(data, seed):
        assert shape_of(batch) in data.shapes
        assert batch["labels"].shape == batch["loss_mask"].shape == batch["inputs"]["target"].shape
        seen += pairs_in(data, batch)
    assert sorted(seen) == sorted(SPLITS["train"])


def test_every_pair_once_in_each_epoch_and_epochs_differ(data):
    epochs = [[pair for batch in epoch(data, 3, number) for pair in pairs_in(data, batch)] for number in range(3)]
    assert all(sorted(each) == sorted(SPLITS["train"]) for each in epochs)
    assert len(set(map(tuple, epochs))) == 3


def test_buckets_hold_both_sides_and_fewer_tokens(builder, data):
    """A wide target needs a wide batch, even if its source is short; all in all less is padded."""
    sources, targets = (len({shape[side] for shape in data.shapes}) for side in (1, 2))
    assert sources > 1 and targets > 1
    one, four = load_from(builder, replace(CONFIG, buckets=1)).padding(), data.padding()
    assert four[0] < one[0] and one[1] == 2 * 21 * 2


def test_padding_is_what_batches_have(data):
    batches = epoch(data, 5)
    held = sum(batch["inputs"]["source"].size + batch["inputs"]["target"].size for batch in batches)
    real = sum((batch["inputs"]["source"] != PAD).sum() + batch["loss_mask"].sum() for batch in batches)
    waste, tokens = data.padding()
    assert waste == pytest.approx(1 - real / held) and tokens == round(held / len(batches))


def test_starting_anywhere_is_going_on_also_at_the_seam_of_epochs(data):
    size = data.batches_per_epoch
    whole = list(itertools.islice(data.train_batches(1), 2 * size + 3))
    for start in (1, size - 1, size, size + 1, 2 * size):
        for one, two in zip(whole[start:], data.train_batches(1, start), strict=False):
            assert_same(one, two)


@pytest.mark.parametrize("processes", [1, 2])
def test_processes_take_their_rows_of_the_same_batches(data, processes):
    streams = [data.train_batches(4, 2, process, processes) for process in range(processes)]
    for whole, *parts in itertools.islice(zip(data.train_batches(4, 2), *streams), 15):
        for name in ("source", "target"):
            assert np.array_equal(np.concatenate([part["inputs"][name] for part in parts]), whole["inputs"][name])
        assert np.array_equal(np.concatenate([part["loss_mask"] for part in parts]), whole["loss_mask"])


@pytest.mark.slow
def test_a_position_saved_with_two_workers_goes_on_with_any_number(data):
    """The position is the number of batches consumed, and nothing of the workers is in it."""
    whole = list(itertools.islice(data.train_batches(2), 24))
    saved, position = data.train_batches(2, workers=2), 0
    for _ in range(9):  # an odd number, so that the two workers are not at the same point
        assert_same(next(saved), whole[position])
        position += 1
    del saved  # ends its processes
    for workers in (0, 1, 3):
        rest = itertools.islice(data.train_batches(2, start=position, workers=workers), len(whole) - position)
        for expected, batch in zip(whole[position:], rest, strict=True):
            assert_same(batch, expected)


def assert_same(one, two):
    for name in ("source", "target"):
        assert np.array_equal(one["inputs"][name], two["inputs"][name])
    assert np.array_equal(one["labels"], two["labels"]) and np.array_equal(one["loss_mask"], two["loss_mask"])


def test_processes_that_do_not_divide_the_rows(data):
    with pytest.raises(ValueError, match="rows cannot be divided evenly among 7 processes"):
        data.train_batches(0, 0, 0, 7)


@pytest.mark.parametrize("batch_size", [None, 1, 3, 100])
def test_evaluation_has_every_pair_once_and_knows_the_file_s_order(data, batch_size):
    found = {}
    for batch in data.eval_batches("validation", batch_size):
        rows, source, target = shape_of(batch)
        assert (source, target) in {shape[1:] for shape in data.shapes}
        assert rows == batch_size or (rows, source, target) in data.shapes
        assert ((batch["rows"] >= 0) == batch["loss_mask"].any(axis=1)).all()
        for row, pair in zip(batch["rows"][batch["rows"] >= 0].tolist(), pairs_in(data, batch), strict=True):
            assert row not in found
            found[row] = pair
    expected = [(source[:20], target[:21]) for source, target in SPLITS["validation"]]  # long ones are cut
    assert [found[row] for row in range(len(expected))] == expected
    assert data.num_examples("validation") == len(expected)


def test_evaluation_does_not_depend_on_the_batch_size(builder):
    """A stand-in for a model that looks at all real tokens of a row and at none beyond."""

    def step(params, batch):
        score = jnp.sqrt((batch["inputs"]["source"].astype(jnp.float32) ** 2).sum(axis=1, keepdims=True))
        values = jnp.where(batch["loss_mask"], score * jnp.sin(batch["labels"].astype(jnp.float32)), 0)
        return {"loss": (values.sum(), batch["loss_mask"].sum())}

    means = [
        evaluate(step, None, load_from(builder, replace(CONFIG, buckets=buckets)).eval_batches("validation", size))
        for buckets in (1, 4)
        for size in (None, 1, 4, 10)
    ]
    assert [mean["loss"] for mean in means[1:]] == pytest.approx([means[0]["loss"]] * 7, rel=1e-6)


@settings(max_examples=20)
@given(st.lists(st.text("abc", max_size=30), max_size=12), st.integers(1, 5))
def test_sentences_to_decode_come_once_in_the_narrowest_width(data, lines, batch_size):
    sources = encode(data.tokenizers["source"], lines, "lines")
    widths = sorted({shape[1] for shape in data.shapes})
    seen = {}
    for rows, ids in source_batches(sources, sorted({source for source, _ in data.widths}), batch_size):
        assert ids.shape[0] == len(rows) == batch_size and ids.shape[1] in widths
        for row, line in zip(rows.tolist(), ids, strict=True):
            if row < 0:
                assert not line.any()
                continue
            assert row not in seen and line[np.flatnonzero(line)[-1]] == EOS
            length = min(len(lines[row]) + 1, widths[-1])
            assert ids.shape[1] == next(width for width in widths if width >= length)
            seen[row] = data.tokenizers["source"].decode(line)
    assert [seen[row] for row in range(len(lines))] == [line[: widths[-1] - 1] for line in lines]


def test_one_row_count_is_a_batch_size(builder):
    data = load_from(builder, replace(CONFIG, tokens_per_batch=0, batch_size=7))
    assert {shape[0] for shape in data.shapes} == {7} and len(data.shapes) > 1
    assert sorted(pair for batch in epoch(data, 0) for pair in pairs_in(data, batch)) == sorted(SPLITS["train"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens_per_batch": 0}, "batch_size must be at least 1, not 0"),
        ({"tokens_per_batch": -1}, "tokens_per_batch must be at least 0, not -1"),
        ({"row_multiple": 0}, "row_multiple must be at least 1, not 0"),
        ({"buckets": 7}, "buckets must be at most 6, not 7"),
        ({"packing": "boxes"}, "packing must be one of chunks, documents, not 'boxes'"),
    ],
)
def test_config_values(change, message):
    with pytest.raises(ValueError, match=message):
        replace(CONFIG, **change)
