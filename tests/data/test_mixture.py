"""Mixtures: how they are written, whose turn it is, and that each source keeps its epochs."""

import itertools
import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.config import DataConfig
from data.loading import load_mixture
from data.plan import MixturePlan, TrainPlan, dataset_at
from data.sources.grammar import parse_mixture, resolve_mixture
from tests.data.in_memory import builder_of, load_from

WEIGHTS = st.lists(st.integers(1, 50), min_size=1, max_size=6).map(lambda w: [Fraction(each, sum(w)) for each in w])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dates", [("dates", 1)]),
        ("A=0.7,B=0.3", [("A", Fraction(7, 10)), ("B", Fraction(3, 10))]),
        ("A=1, B=3", [("A", Fraction(1, 4)), ("B", Fraction(3, 4))]),
        ("tfds:wmt14_translate/de-en:1.0.0=2e0,text:/a=b,c.txt=.5", None),
        ("text:/a,b=c.txt", [("text:/a,b=c.txt", 1)]),
        ("parallel:/x/v1.2", [("parallel:/x/v1.2", 1)]),
        ("tsv:/lr=0.5", [("tsv:/lr=0.5", 1)]),
        ("tsv:/lr=1,b.tsv", [("tsv:/lr=1,b.tsv", 1)]),
        ("tsv:/lr=1,b/=1,text:/n=2,./x=1", [("tsv:/lr=1,b/", Fraction(1, 2)), ("text:/n=2,./x", Fraction(1, 2))]),
        ("A=0.1,B=0.1,C=0.1", [("A", Fraction(1, 3)), ("B", Fraction(1, 3)), ("C", Fraction(1, 3))]),
    ],
)
def test_how_a_mixture_is_written(text, expected):
    if expected is None:
        expected = [("tfds:wmt14_translate/de-en:1.0.0", Fraction(4, 5)), ("text:/a=b,c.txt", Fraction(1, 5))]
    assert parse_mixture(text) == expected
    assert resolve_mixture(text, str.upper) == [(name.upper(), weight) for name, weight in expected]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A=0.7,B", "'B' has no weight; wanted SOURCE=WEIGHT,SOURCE=WEIGHT"),
        ("A=0.7,", "'' has no weight"),
        ("A=0.7,B=0", "the weight of B must be positive, not 0"),
        ("A=-1,B=2", "the weight of A must be positive, not -1"),
        ("=0.5,B=0.5", "a weight without a source"),
        ("A=0.5,A=0.5", "A is there 2 times"),
    ],
)
def test_what_is_no_mixture(text, message):
    with pytest.raises(ValueError, match=message) as error:
        parse_mixture(text)
    assert "\n" not in str(error.value) and repr(text) in str(error.value)


@given(WEIGHTS, st.integers(0, 300))
def test_turns_count_up_and_shares_are_exact_up_to_rounding(weights, batches):
    counts = [0] * len(weights)
    for index in range(batches):
        source, before = dataset_at(index, weights)
        assert before == counts[source]
        counts[source] += 1
    for count, weight in zip(counts, weights, strict=True):
        assert abs(count - batches * weight) <= max(len(weights) / 2, 0.5)


def test_two_sources_are_never_more_than_half_a_batch_off():
    weights, first = (Fraction(7, 10), Fraction(3, 10)), 0
    for index in range(1000):
        first += dataset_at(index, weights)[0] == 0
        assert abs(first - (index + 1) * weights[0]) <= Fraction(1, 2)
    far = 10**15 + 3  # no rounding error, however long the run
    assert (
        dataset_at(far, weights) == dataset_at(far, weights)
        and abs(dataset_at(far, weights)[1] - far * Fraction(7, 10)) < far / 2
    )


@given(WEIGHTS, st.integers(0, 200), st.integers(0, 3))
def test_a_mixed_batch_depends_on_its_index_alone(weights, index, seed):
    def plan():
        numbers = [np.arange(7 * s, 7 * s + 7) for s in range(len(weights))]
        plans = [TrainPlan(np.zeros(7, int), (2,), seed, stream) for stream in range(len(weights))]
        return MixturePlan(tuple(weights), tuple(plans), tuple(numbers))

    used = plan()
    batches = [used[n][0] for n in range(index + 1)]
    assert np.array_equal(plan()[index][0], batches[index])
    assert len({row // 7 for row in batches[index] if row >= 0}) == 1


PAIRS = {"train": [(f"a{n}", "x") for n in range(9)], "validation": [("aa", "x"), ("a1", "x")], "extra": [("a", "x")]}
OTHER = {"train": [(f"b{n}" * 3, "yy") for n in range(4)], "validation": [("bb", "yy")]}
CONFIG = DataConfig(source="in memory", batch_size=2)
THIRD = [Fraction(2, 3), Fraction(1, 3)]


@pytest.fixture(scope="module")
def builders(tmp_path_factory):
    return [
        builder_of(tmp_path_factory.mktemp(name), splits, ("source", "target"))
        for name, splits in (("one", PAIRS), ("two", OTHER))
    ]


def texts(data, batch):
    return [data.tokenizers["source"].decode(row) for row in batch["inputs"]["source"] if row.any()]


@pytest.mark.parametrize("change", [{}, {"buckets": 2}, {"buckets": 2, "tokens_per_batch": 16, "row_multiple": 1}])
def test_each_source_has_its_share_and_its_own_epochs(builders, change):
    data = load_mixture(list(zip(builders, THIRD, strict=True)), replace(CONFIG, **change))
    by_source = {"a": [], "b": []}
    for batch in itertools.islice(data.train_batches(0), 90):
        found = texts(data, batch)
        assert len({text[0] for text in found}) == 1
        by_source[found[0][0]].append(found)
    assert {name: len(batches) for name, batches in by_source.items()} == {"a": 60, "b": 30}
    for plan, splits, batches in zip(data._train_plan(0).plans, (PAIRS, OTHER), by_source.values(), strict=True):
        size = plan.batches_per_epoch
        for start in range(0, len(batches) - size + 1, size):
            seen = list(itertools.chain.from_iterable(batches[start : start + size]))
            assert sorted(seen) == sorted(source for source, _ in splits["train"])


def test_a_mixture_is_resumed_like_one(builders):
    data = load_mixture(list(zip(builders, THIRD, strict=True)), CONFIG)
    whole = [texts(data, batch) for batch in itertools.islice(data.train_batches(1), 40)]
    for start in (1, 2, 17, 30):
        assert [texts(data, b) for b in itertools.islice(data.train_batches(1, start), 40 - start)] == whole[start:]


def test_tokenizers_and_held_out_splits_are_of_all_sources(builders):
    data = load_mixture(list(zip(builders, THIRD, strict=True)), CONFIG)
    assert set("ab012345678xy") == set().union(*(t.characters for t in data.tokenizers.values()))
    for split, expected in (("validation", ["aa", "a1", "bb"]), ("extra", ["a"])):
        rows = {}
        for batch in data.eval_batches(split):
            rows |= dict(zip(batch["rows"][batch["rows"] >= 0].tolist(), texts(data, batch), strict=True))
        assert [rows[n] for n in range(len(rows))] == expected
        assert [example["source"] for example in data.examples(split)] == expected
        assert data.examples(split)[-1] == data.examples(split)[len(expected) - 1 :][0]
    assert data.num_train_examples == 13
    with pytest.raises(ValueError, match="no split 'dev'"):
        data.examples("dev")


@pytest.mark.parametrize("packing", ["chunks", "documents"])
def test_text_is_mixed_and_no_row_is_of_two_sources(tmp_path, packing):
    one, two = ["abab", "ba", "a"] * 3, ["cd" * 7, "d"]
    builders = [builder_of(tmp_path / n, {"train": t, "validation": t}, ("text",)) for n, t in (("1", one), ("2", two))]
    config = replace(CONFIG, batch_size=1, max_target_length=5, packing=packing)
    data = load_mixture(list(zip(builders, THIRD, strict=True)), config)
    seen = Counter()
    for batch in itertools.islice(data.train_batches(0), 60):
        text = data.tokenizers["text"].decode(batch["labels"][0])
        assert not (set(text) & set("ab") and set(text) & set("cd"))
        seen["one" if set(text) & set("ab") else "two" if text else "neither"] += 1
    assert seen["one"] >= 38 and seen["two"] >= 18
    labels = np.concatenate([batch["labels"][batch["loss_mask"]] for batch in data.eval_batches("validation")])
    assert Counter(data.tokenizers["text"].decode(labels)) == Counter("".join(one + two))


def test_padding_is_weighed_by_the_shares(builders):
    data = load_mixture(list(zip(builders, THIRD, strict=True)), CONFIG)
    batches = list(itertools.islice(data.train_batches(0), 60))  # whole epochs of both: 8 of 5, 10 of 2 batches
    held = sum(batch["inputs"]["source"].size + batch["inputs"]["target"].size for batch in batches)
    real = sum((batch["inputs"]["source"] != 0).sum() + batch["loss_mask"].sum() for batch in batches)
    assert data.padding()[0] == pytest.approx(1 - real / held)
    assert math.isclose(data.padding()[1], held / 60, abs_tol=0.5)


def test_shapes_suit_the_source_with_the_larger_share(tmp_path):
    """Few short pairs that make up nearly all batches decide, not the many long ones."""
    short, long = [("a" * (n % 4 + 1), "x") for n in range(20)], [("a" * (n % 30 + 5), "x") for n in range(400)]
    builders = [
        builder_of(tmp_path / name, {"train": pairs}, ("source", "target"))
        for name, pairs in (("short", short), ("long", long))
    ]
    config = replace(CONFIG, buckets=3)
    often = load_mixture(list(zip(builders, [Fraction(99, 100), Fraction(1, 100)], strict=True)), config)
    seldom = load_mixture(list(zip(builders, [Fraction(1, 100), Fraction(99, 100)], strict=True)), config)
    assert often.widths[0][0] <= 5 < seldom.widths[0][0]


def test_mixtures_that_cannot_be(builders, tmp_path):
    text = builder_of(tmp_path, {"train": ["a"]}, ("text",))
    with pytest.raises(
        ValueError, match="a mixture is of pairs, or of text, not of both: given has source and target, "
    ):
        load_mixture([(builders[0], Fraction(1, 2)), (text, Fraction(1, 2))], CONFIG)
    with pytest.raises(
        ValueError, match="batch_size must be between 1 and the number of training examples of given, 4, not 5"
    ):
        load_mixture(list(zip(builders, THIRD, strict=True)), replace(CONFIG, batch_size=5)).train_batches(0)


def test_one_source_is_a_mixture_of_one(builders):
    one, alone = load_mixture([(builders[0], Fraction(1))], CONFIG), load_from(builders[0], CONFIG)
    for mixed, single in itertools.islice(zip(one.train_batches(0), alone.train_batches(0)), 12):
        assert texts(one, mixed) == texts(alone, single)
