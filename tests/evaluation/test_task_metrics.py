"""What is scored by which scorer."""

import pytest

from evaluation.task_metrics import rows_to_score, score

SOURCES, TARGETS = ["aa", "b", "aa", "aa"], ["A A", "B", "A B", "A A"]


def test_an_example_counts_once_and_a_pronounced_word_once():
    rows = rows_to_score("translation", SOURCES, TARGETS, None)
    assert [(row.row, row.references) for row in rows] == list(enumerate(zip(TARGETS)))
    rows = rows_to_score("pronunciation", SOURCES, TARGETS, None)
    assert [(row.source, row.row, row.references) for row in rows] == [("aa", 0, ("A A", "A B")), ("b", 1, ("B",))]
    metrics, signatures = score("pronunciation", ["A B", "C"], rows)
    assert metrics == {"exact_match": 0.5, "word_error_rate": 0.5, "phoneme_error_rate": pytest.approx(1 / 3)}
    assert signatures == {}


def test_groups_come_worst_first():
    rows = rows_to_score("exact_match", SOURCES, TARGETS, ["ko", "en", "de", "ko"])
    metrics, _ = score("exact_match", ["A A", "B", "x", "x"], rows)
    assert metrics["exact_match"] == 0.5
    assert list(metrics["exact_match_by_group"].items()) == [("de", 0.0), ("ko", 0.5), ("en", 1.0)]


def test_translations_have_signatures():
    rows = rows_to_score("translation", ["x"], ["the cat sat on the mat"], None)
    metrics, signatures = score("translation", ["the cat sat on the mat"], rows, tokenized=True)
    assert {name: metrics[name] for name in signatures} == pytest.approx(
        {"bleu": 100, "chrf": 100, "tokenized_bleu": 100}
    )
    with pytest.raises(ValueError, match="task must be one of translation, pronunciation, exact_match, got 'blue'"):
        rows_to_score("blue", ["x"], ["y"], None)
