"""What is scored is text as people write it, and each output is held against its own references."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

import data.loading
from data.tokenizers.words import WordTokenizer
from evaluation import evaluate_split as run_evaluation
from evaluation.evaluate_split import evaluate_split
from evaluation.tasks import TokenLoss
from evaluation.text_metrics import bleu
from inference.generation_config import DecodingOptions
from inference.trained_model import TrainedModel
from inference.translator import Hypothesis
from training.finite import NonFiniteError
from workdir.restore import load_run

EXAMPLES = [
    {"source": "der hund beißt den mann", "target": "the d@@ og bites  the man to@@ day", "topic": "dogs"},
    {"source": "die katze\nschläft auf der matte", "target": "the cat sleeps on the m@@ at", "topic": "cats"},
    {"source": "der hund schläft", "target": "the d@@ og sleeps on the floor", "topic": "dogs"},
]


@pytest.fixture
def evaluated(monkeypatch):
    """evaluate_split of a model that gives these outputs, as its tokenizer decodes them."""
    tokenizer = WordTokenizer.train(example["target"] for example in EXAMPLES)

    class Answers:
        def __init__(self, trained, options):
            pass

        def split_hypotheses(self, data, split, progress):
            return [[Hypothesis(tokenizer.decode(tokenizer.encode(text)), 0.0, True, None)] for text in Answers.texts]

    def run(texts, task="translation", examples=EXAMPLES, **options):
        Answers.texts = texts
        monkeypatch.setattr(run_evaluation, "Translator", Answers)
        monkeypatch.setattr(run_evaluation, "_token_loss", lambda *arguments: TokenLoss(1.0, 9, []))
        data = SimpleNamespace(examples=lambda split: examples, num_examples=lambda split: len(examples))
        trained = TrainedModel(None, None, {"target": tokenizer}, None)
        return evaluate_split(trained, data, "test", task, DecodingOptions(), **options)

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


def test_an_example_counts_once_and_a_pronounced_word_once(evaluated):
    """By the task: translations are counted by example, each against its own target, pronunciations by source."""
    pairs = (("aa", "the d@@ og"), ("b", "the cat"), ("aa", "the m@@ at"), ("aa", "the d@@ og"))
    dog, cat, mat = "the dog", "the cat", "the mat"
    examples = [{"source": source, "target": target} for source, target in pairs]
    for task in ("translation", "exact_match"):
        found = evaluated(["the d@@ og", "the cat", "the d@@ og", "the d@@ og"], task, examples)
        assert (found.metrics["scored"], found.metrics["exact_match"]) == (4, 3 / 4)
        assert [each.references for each in found.examples] == [(dog,), (cat,), (mat,), (dog,)]
    found = evaluated(["the m@@ at", "the floor", "the cat", "the cat"], "pronunciation", examples)
    assert [(each.source, each.references) for each in found.examples] == [("aa", (dog, mat)), ("b", (cat,))]
    wanted = {"exact_match": 0.5, "word_error_rate": 0.5, "phoneme_error_rate": pytest.approx(1 / 4)}
    assert wanted.items() <= found.metrics.items() and found.signatures == {}
    assert (found.metrics["examples"], found.metrics["scored"]) == (4, 2)


def test_the_loss_can_be_left_out(evaluated):
    found = evaluated(["x"] * 3, with_loss=False)
    assert "nats_per_token" not in found.metrics and found.metrics["exact_match"] == 0


def test_a_loss_that_is_no_number_is_not_reported(text_run):
    run = load_run(text_run)
    params = jax.tree.map(lambda x: x * np.nan, run.select_params("last").params)
    config = run.experiment.config
    loaded = data.loading.load(config.data, tokenizers_from=run.directory.tokenizers)
    with pytest.raises(NonFiniteError, match=r"^the loss on train is nan$"):
        evaluate_split(run.trained_model(params), loaded, "train", "language_modeling")
