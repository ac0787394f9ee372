"""What is scored is text as people write it, and each output is held against its own references."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

import data.loading
from data.tokenizers.words import WordTokenizer
from evaluation import evaluate_split as run_evaluation
from evaluation.corpus_bleu import bleu
from evaluation.evaluate_split import evaluate_pairs, evaluate_text
from inference.generation_config import DecodingOptions
from inference.translator import Hypothesis
from training.finite import NonFiniteError
from workdir.restore import open_run_for_use

EXAMPLES = [
    {"source": "der hund beißt den mann", "target": "the d@@ og bites  the man to@@ day", "topic": "dogs"},
    {"source": "die katze\nschläft auf der matte", "target": "the cat sleeps on the m@@ at", "topic": "cats"},
    {"source": "der hund schläft", "target": "the d@@ og sleeps on the floor", "topic": "dogs"},
]


@pytest.fixture
def evaluated(monkeypatch):
    """evaluate_pairs of a model that gives these outputs, as its tokenizer decodes them."""
    tokenizer = WordTokenizer.train(example["target"] for example in EXAMPLES)

    class Answers:
        def __init__(self, trained, options):
            pass

        def split_hypotheses(self, data, split, progress):
            return [[Hypothesis(tokenizer.decode(tokenizer.encode(text)), 0.0, True, None)] for text in Answers.texts]

    def run(texts, task="translation", examples=EXAMPLES, **options):
        Answers.texts = texts
        monkeypatch.setattr(run_evaluation, "Translator", Answers)
        monkeypatch.setattr(run_evaluation, "_loss", lambda trained, data, split, logits_chunk: 1.0)
        data = SimpleNamespace(examples=lambda split: examples)
        trained = SimpleNamespace(tokenizers={"target": tokenizer})
        return evaluate_pairs(trained, data, "test", DecodingOptions(), task, **options)

    return run


def test_the_right_translation_is_100_and_pieces_are_joined(evaluated):
    found = evaluated([example["target"] for example in EXAMPLES], tokenized=True)
    for name in ("bleu", "chrf", "tokenized_bleu"):
        assert found.metrics[name] == pytest.approx(100.0)
    assert found.signatures.keys() == {"bleu", "chrf", "tokenized_bleu"}
    assert found.metrics["exact_match"] == 1.0 and found.metrics["perplexity"] == pytest.approx(2.718281828)
    assert found.texts["hypotheses"][0] == found.texts["references"][0] == "the dog bites the man today"
    assert found.texts["sources"][1] == "die katze schläft auf der matte"
    assert {len(texts) for texts in found.texts.values()} == {3}


def test_another_order_is_another_score(evaluated):
    """Rotated outputs: none is right, though every one is some reference."""
    targets = [example["target"] for example in EXAMPLES]
    found = evaluated(targets[1:] + targets[:1], group="topic")
    assert found.metrics["exact_match"] == 0.0
    assert found.metrics["bleu"] == bleu(found.texts["hypotheses"], found.texts["references"]).score < 50
    found = evaluated([targets[0], targets[0], targets[2]], group="topic")
    assert list(found.metrics["exact_match_by_group"].items()) == [("cats", 0.0), ("dogs", 1.0)]
    with pytest.raises(ValueError, match="no 'colour' to group them by: there are source, target, topic"):
        evaluated(targets, group="colour")


def test_a_word_with_two_pronunciations_is_scored_by_its_own_output(evaluated):
    """The outputs after it do not move up."""
    pairs = (("dog", "the d@@ og"), ("dog", "the cat"), ("mat", "the m@@ at"))
    examples = [{"source": source, "target": target} for source, target in pairs]
    found = evaluated(["the cat", "the cat", "the m@@ at"], "pronunciation", examples)
    assert found.metrics["exact_match"] == 1.0 and found.metrics["phoneme_error_rate"] == 0.0
    assert found.texts["hypotheses"] == ["the cat", "the mat"]
    assert found.texts["references"] == ["the dog\tthe cat", "the mat"]


def test_a_loss_that_is_no_number_is_not_reported(text_run):
    run = open_run_for_use(text_run)
    params = jax.tree.map(lambda x: x * np.nan, run.select_params("last").params)
    config = run.experiment.config
    loaded = data.loading.load(config.data, tokenizers_from=run.directory.tokenizers)
    with pytest.raises(NonFiniteError, match=r"^the loss on train is nan$"):
        evaluate_text(run.loaded(params), loaded, "train")
