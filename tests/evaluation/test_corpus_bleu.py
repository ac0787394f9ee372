"""BLEU and chrF: sacreBLEU's numbers, from flat lists, of the whole corpus."""

import pytest

from evaluation.corpus_bleu import bleu, chrf, tokenized_bleu

OUTPUTS = ["The dog bit the man.", "It wasn't surprising.", "The man had just bitten him."]
REFERENCES = ["The dog bit the man.", "It was not unexpected.", "The man bit him first."]


def test_the_example_of_sacrebleu_s_readme():
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
def test_references_cannot_be_nested_the_wrong_way(scorer):
    for wrong in ([REFERENCES], [[right] for right in REFERENCES], "text"):
        with pytest.raises(TypeError, match="references must be a flat list of str"):
            scorer(OUTPUTS, wrong)
    with pytest.raises(ValueError, match="3 outputs, but 2 references"):
        scorer(OUTPUTS, REFERENCES[:2])
    with pytest.raises(ValueError, match="no outputs"):
        scorer([], [])
