"""Packing: every token once, no piece torn, few rows, and documents that do not know of each other."""

import itertools
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.config import DataConfig
from data.packing import join, pack
from data.tokenizers.base import EOS, PAD
from model.config import LanguageModelConfig
from model.language_model import LanguageModel
from tests.data.in_memory import builder_of, load_from
from tests.model.samples import compiled
from training.eval_step import evaluate, make_eval_step
from training.loss import token_loss

LENGTHS = st.lists(st.integers(0, 30), min_size=1, max_size=40).map(np.array)
WIDTHS = st.integers(1, 12)


def ideal_pieces(lengths, width):
    """(begin, length) of every piece."""
    starts = np.cumsum(lengths) - lengths
    return sorted(
        (int(start + at), int(min(length - at, width)))
        for start, length in zip(starts, lengths, strict=True)
        for at in range(0, length, width)
    )


@given(LENGTHS, WIDTHS)
def test_every_piece_is_there_once_and_none_overlaps(lengths, width):
    packing = pack(lengths, width)
    assert sorted(zip(packing.begin.tolist(), packing.length.tolist(), strict=True)) == ideal_pieces(lengths, width)
    assert packing.first[0] == 0 and packing.first[-1] == len(packing.begin) and (np.diff(packing.first) > 0).all()
    for begin, end in itertools.pairwise(packing.first):
        ends = packing.offset[begin:end] + packing.length[begin:end]
        assert packing.offset[begin] == 0 and ends[-1] <= width
        assert (packing.offset[begin + 1 : end] == ends[:-1]).all()  # side by side, no hole


@given(LENGTHS, WIDTHS)
def test_places_say_where_every_token_is(lengths, width):
    packing = pack(lengths, width)
    index, segment, position = packing.places(np.arange(len(packing)))
    assert sorted(index[index >= 0].tolist()) == list(range(lengths.sum()))
    assert ((index >= 0) == (segment > 0)).all() and not position[index < 0].any()
    for row in range(len(packing)):
        for number in range(1, segment[row].max() + 1):
            inside = segment[row] == number
            assert (np.diff(np.flatnonzero(inside)) == 1).all() and (np.diff(index[row][inside]) == 1).all()
            assert position[row][inside].tolist() == list(range(inside.sum()))


@given(LENGTHS, WIDTHS, st.data())
def test_any_rows_in_any_order_with_empty_ones_between(lengths, width, data):
    packing = pack(lengths, width)
    whole = packing.places(np.arange(len(packing)))
    rows = np.array(data.draw(st.lists(st.integers(-1, len(packing) - 1), max_size=6)), int)
    for part, all_rows, empty in zip(packing.places(rows), whole, (-1, 0, 0), strict=True):
        assert part.shape == (len(rows), width)
        for row, values in zip(rows, part, strict=True):
            assert np.array_equal(values, np.full(width, empty) if row < 0 else all_rows[row])


@given(LENGTHS, WIDTHS)
def test_rows_are_few(lengths, width):
    """No two rows could be one, so they are at least half full but for one."""
    packing = pack(lengths, width)
    filled = np.sort(np.add.reduceat(packing.length, packing.first[:-1])) if len(packing) else np.zeros(0)
    assert len(packing) < 2 or filled[0] + filled[1] > width


@given(st.lists(LENGTHS, min_size=1, max_size=3), WIDTHS)
def test_joined_packings_keep_apart(parts, width):
    begins = np.cumsum([0, *(part.sum() for part in parts)])
    packings = [pack(part, width, int(begin)) for part, begin in zip(parts, begins, strict=False)]
    joined = join(packings)
    index = joined.places(np.arange(len(joined)))[0]
    assert sorted(index[index >= 0].tolist()) == list(range(begins[-1]))
    ends = np.cumsum([len(packing) for packing in packings])
    for row in index[index.max(axis=1, initial=-1) >= 0]:
        assert len(set(np.searchsorted(begins, row[row >= 0], side="right"))) == 1
    assert len(joined) == ends[-1]


def test_a_hundred_thousand_documents_take_no_time_and_no_room():
    lengths = np.random.default_rng(0).geometric(1 / 200, 100_000)
    clock = time.process_time()
    packing = pack(lengths, 512)
    assert time.process_time() - clock < 2  # 0.06 s on an idle machine
    assert lengths.sum() / (len(packing) * 512) > 0.999


# What a model makes of it.

DOCUMENTS = ["abcab", "", "cc", "abcabcabcabcabcabc", "b", "bca", "aaab", "c"]
WIDTH = 8
CONFIG = DataConfig(source="in memory", batch_size=2, max_target_length=WIDTH, packing="documents")


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    builder = builder_of(tmp_path_factory.mktemp("text"), {"train": DOCUMENTS, "validation": DOCUMENTS[:3]}, ("text",))
    return load_from(builder, CONFIG)


@pytest.fixture(scope="module")
def model(packed):
    config = LanguageModelConfig(d_model=16, num_heads=2, d_ff=32, num_layers=2, max_length=WIDTH, dropout=0.0)
    model = LanguageModel(config, packed.vocab_sizes["text"])
    return model, model.init(jax.random.key(0), jnp.ones((1, WIDTH), int))["params"]


def rows_of(data, split="train"):
    batches = list(data.eval_batches(split))
    return {
        **{name: np.concatenate([batch["inputs"][name] for batch in batches]) for name in batches[0]["inputs"]},
        **{name: np.concatenate([batch[name] for batch in batches]) for name in ("labels", "loss_mask")},
    }


def test_packed_batches_spelt_out(packed):
    rows, encode = rows_of(packed), packed.tokenizers["text"].encode
    assert rows["tokens"].shape[1] == WIDTH and rows["segments"].dtype == rows["positions"].dtype == np.int32
    pieces = []
    for row in range(len(rows["tokens"])):
        for number in range(1, rows["segments"][row].max() + 1):
            inside = rows["segments"][row] == number
            assert rows["positions"][row][inside].tolist() == list(range(inside.sum()))
            pieces.append((rows["tokens"][row][inside].tolist(), rows["labels"][row][inside].tolist()))
    expected = []
    for document in DOCUMENTS:
        labels = [*encode(document).tolist(), EOS]
        tokens = [EOS, *labels[:-1]]
        expected += [(tokens[at : at + WIDTH], labels[at : at + WIDTH]) for at in range(0, len(labels), WIDTH)]
    assert sorted(pieces) == sorted(expected)
    padding = rows["segments"] == 0
    assert (rows["tokens"][padding] == PAD).all() and (rows["labels"][padding] == PAD).all()
    assert (rows["loss_mask"] == ~padding).all()


def test_long_documents_are_counted(packed, capsys):
    load_from(packed.datasets[0], CONFIG)
    assert capsys.readouterr().out.splitlines() == [
        "given, train: 1 of 8 documents are longer than 8 tokens and are taken in pieces"
    ]


def test_logits_of_packed_documents_are_those_of_the_documents_alone(packed, model):
    model, params = model
    rows = rows_of(packed)
    inputs = {name: jnp.asarray(rows[name]) for name in ("tokens", "segments", "positions")}
    logits = np.asarray(model.apply({"params": params}, **inputs))
    apply, compared = compiled(lambda tokens: model.apply({"params": params}, tokens)), 0
    for row in range(len(logits)):
        for number in range(1, rows["segments"][row].max() + 1):
            inside = rows["segments"][row] == number
            alone = np.zeros((1, WIDTH), np.int32)  # what follows a token is not seen by it
            alone[0, : inside.sum()] = rows["tokens"][row][inside]
            np.testing.assert_allclose(logits[row][inside], apply(alone)[0, : inside.sum()], rtol=0, atol=1e-5)
            compared += inside.sum()
    assert compared == sum(len(document) + 1 for document in DOCUMENTS)


def test_editing_a_document_moves_no_bit_of_another(packed, model):
    model, params = model
    rows = rows_of(packed)
    inputs = {name: jnp.asarray(rows[name]) for name in ("tokens", "segments", "positions")}
    apply = jax.jit(lambda inputs: model.apply({"params": params}, **inputs))
    before = np.asarray(apply(inputs))
    row = int(np.argmax(rows["segments"].max(axis=1)))
    assert rows["segments"][row].max() >= 2
    for number in range(1, rows["segments"][row].max() + 1):
        edited = rows["segments"] == number
        edited[:row] = edited[row + 1 :] = False
        tokens = np.where(edited, 4 + (rows["tokens"] + 1) % 3, rows["tokens"])
        after = np.asarray(apply(inputs | {"tokens": tokens}))
        assert np.array_equal(after[~edited], before[~edited])
        assert not np.array_equal(after[edited], before[edited])


def test_the_loss_takes_packed_batches_and_counts_each_token_once(packed, model):
    model, params = model
    eval_step, means = make_eval_step(token_loss(model)), []
    for batch_size in (1, 2, 3):
        batches = list(packed.eval_batches("train", batch_size))
        assert sum(batch["loss_mask"].sum() for batch in batches) == sum(len(document) + 1 for document in DOCUMENTS)
        means.append(evaluate(eval_step, params, batches)["loss"])
    assert means[1:] == pytest.approx([means[0]] * 2, rel=1e-6)


@settings(max_examples=10)
@given(st.integers(0, 100))
def test_an_epoch_of_packed_rows_has_every_token_once(packed, seed):
    epoch = -(-packed.num_train_examples // 2)
    batches = list(itertools.islice(packed.train_batches(seed), epoch))
    labels = np.concatenate([batch["labels"][batch["loss_mask"]] for batch in batches])
    assert np.array_equal(np.sort(labels), np.sort(packed.encoded["train"]["text"].ids))
