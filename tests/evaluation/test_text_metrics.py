"""Scores: worked by hand, several references, and never a mean of means."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.text_metrics import bits_per_byte, exact_match, phoneme_error_rate, word_error_rate

WORDS = st.lists(st.sampled_from("abc"), max_size=5).map(" ".join)


def distance(one, two):
    """Levenshtein's, by its definition."""
    one, two = one.split(), two.split()
    row = list(range(len(two) + 1))
    for i, x in enumerate(one, start=1):
        previous, row[0] = row[0], i
        for j, y in enumerate(two, start=1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (x != y))
    return row[-1]


def test_exact_match_with_several_references():
    assert exact_match(["a", "b", "c", ""], [["a"], ["x", "b"], ["C"], [""]]) == 3 / 4


@pytest.mark.parametrize("rate", [word_error_rate, phoneme_error_rate])
def test_error_rates_by_hand(rate):
    # One substitution and one deletion in 4 words, then an insertion to 1: 3 edits in 5 words.
    assert rate(["HH AH1 L", "x y"], [["HH AH0 L OW1"], ["x"]]) == 3 / 5
    # Not the mean of the two, (2/4 + 1/1) / 2.
    assert rate(["HH AH1 L"], [["HH AH0 L OW1"]]) == 2 / 4
    # The closest reference counts, with its own length.
    assert (
        rate(
            ["a b c"],
            [
                ["x y z w", "a b"],
            ],
        )
        == 1 / 2
    )
    # Of two equally close ones the longer.
    assert rate(["a b c"], [["a b", "a b c d"]]) == 1 / 4
    assert rate(["a b c d"], [["a"]]) == 3
    assert rate(["", "a"], [["a b"], ["a"]]) == 2 / 3
    assert rate(["a", "b"], [[""], ["b"]]) == 1
    assert rate([" a\tb "], [["a  b"]]) == 0


@given(st.lists(st.tuples(WORDS, st.lists(WORDS, min_size=1, max_size=3)), min_size=1, max_size=6))
def test_error_rates_are_by_the_definition(pairs):
    outputs, references = [output for output, _ in pairs], [right for _, right in pairs]
    closest = [min((distance(output, r), -len(r.split())) for r in right) for output, right in pairs]
    words = -sum(length for _, length in closest)
    if words:
        assert word_error_rate(outputs, references) == sum(edits for edits, _ in closest) / words
    else:
        with pytest.raises(ValueError, match="no words"):
            word_error_rate(outputs, references)


def test_bits_per_byte():
    # A byte at the uniform distribution over 256 is 8 bits; é is two bytes, 한 three.
    assert bits_per_byte(3 * math.log(256), ["a", "bc"]) == pytest.approx(8)
    assert bits_per_byte(5 * math.log(2), ["é", "한"]) == pytest.approx(1)
    assert bits_per_byte(math.inf, ["a"]) == math.inf and math.isnan(bits_per_byte(math.nan, ["a"]))
    with pytest.raises(ValueError, match="without a byte"):
        bits_per_byte(1.0, ["", ""])


@pytest.mark.parametrize("score", [exact_match, word_error_rate, phoneme_error_rate])
def test_references_that_do_not_belong(score):
    with pytest.raises(ValueError, match="2 outputs, but references of 1"):
        score(["a", "b"], [["a"]])
    with pytest.raises(ValueError, match="there are no outputs"):
        score([], [])
    with pytest.raises(ValueError, match="output 2 has no reference"):
        score(["a", "b"], [["a"], []])
    # A str is a sequence of its characters: "ab" would be two references.
    with pytest.raises(TypeError, match="the references of output 1 must be a list of str, not the str 'ab'"):
        score(["a"], ["ab"])
