"""Scores: worked by hand, several references, and never a mean of means."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.text_metrics import (
    bits_per_byte,
    bleu,
    chrf,
    exact_match,
    exact_match_by_group,
    phoneme_error_rate,
    tokenized_bleu,
    word_error_rate,
)

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


def test_a_word_is_wrong_if_it_is_none_of_its_references():
    """Grapheme-to-phoneme's word error rate, not speech recognition's."""
    assert word_error_rate(["R EH D", "L IY", "B"], [["R IY D", "R EH D"], ["L IY D"], ["C"]]) == pytest.approx(2 / 3)


def test_the_phoneme_error_rate_by_hand():
    rate = phoneme_error_rate
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
def test_the_phoneme_error_rate_is_by_the_definition(pairs):
    outputs, references = [output for output, _ in pairs], [right for _, right in pairs]
    closest = [min((distance(output, r), -len(r.split())) for r in right) for output, right in pairs]
    words = -sum(length for _, length in closest)
    if words:
        assert phoneme_error_rate(outputs, references) == sum(edits for edits, _ in closest) / words
    else:
        with pytest.raises(ValueError, match="no phonemes"):
            phoneme_error_rate(outputs, references)


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


OUTPUTS = ["The dog bit the man.", "It wasn't surprising.", "The man had just bitten him."]
REFERENCES = ["The dog bit the man.", "It was not unexpected.", "The man bit him first."]


def test_bleu_is_that_of_the_example_in_sacrebleu_s_readme():
    """45.07: the corpus's BLEU. The mean of its sentences' would be 43.47."""
    score = bleu(OUTPUTS, REFERENCES)
    assert round(score.score, 2) == 45.07
    assert score.signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    sentences = [bleu([output], [right]).score for output, right in zip(OUTPUTS, REFERENCES)]
    assert sum(sentences) / 3 != pytest.approx(score.score, abs=1)


def test_a_translation_that_is_its_reference_has_100():
    for scorer in (bleu, chrf, tokenized_bleu):
        assert scorer(REFERENCES, REFERENCES).score == pytest.approx(100.0)


def test_tokenized_text_is_taken_as_it_is():
    outputs, references = ["a dog , that ran ."], ["a dog , that barked ."]
    assert tokenized_bleu(outputs, references).score != pytest.approx(
        tokenized_bleu(["a dog, that ran."], ["a dog, that barked."]).score
    )
    assert "tok:none" in tokenized_bleu(outputs, references).signature


@pytest.mark.parametrize("scorer", [bleu, chrf, tokenized_bleu])
def test_references_of_bleu_cannot_be_nested_the_wrong_way(scorer):
    for wrong in ([REFERENCES], [[right] for right in REFERENCES], "text"):
        with pytest.raises(TypeError, match="references must be a flat list of str"):
            scorer(OUTPUTS, wrong)
    with pytest.raises(ValueError, match="3 outputs, but 2 references"):
        scorer(OUTPUTS, REFERENCES[:2])
    with pytest.raises(ValueError, match="no outputs"):
        scorer([], [])


def test_groups_come_worst_first():
    outputs, references = ["A", "B", "x", "x", "A"], [["A"], ["B"], ["A"], ["A"], ["A"]]
    found = exact_match_by_group(outputs, references, ["ko", "en", "de", "ko", None])
    assert list(found.items()) == [("de", 0.0), ("ko", 0.5), ("en", 1.0)]
