"""The registry: a metric is added in one place, and every evaluation knows it."""

import math

import pytest

from evaluation import tasks
from evaluation.tasks import DECODED_METRICS, TASKS, TextMetric, TokenLoss, check_task
from experiments.experiment import STANDARD_METRICS
from experiments.reports import decoded_metrics, task_report
from tests.scripts import in_this_process
from training.directions import check_directions


def test_every_metric_has_one_direction():
    for task in TASKS.values():
        check_directions({name: metric.direction for name, metric in task.metrics.items()})
        for name, metric in task.text_metrics.items():
            assert DECODED_METRICS[name] == STANDARD_METRICS[name] == metric.direction


def test_a_metric_that_is_registered_is_measured_everywhere(monkeypatch, spelling_run, capsys):
    """evaluate.py, the standard report and decoded_metrics: nothing else is touched."""
    import evaluate
    from data.loading import load
    from workdir.restore import load_run

    def length_ratio(outputs, references):
        return sum(map(len, outputs)) / sum(len(first) for first, *_ in references)

    monkeypatch.setitem(TASKS["exact_match"].text_metrics, "length_ratio", TextMetric(length_ratio, "max"))
    done = in_this_process(monkeypatch, evaluate.main, spelling_run, "--split", "validation")
    (line,) = [line for line in done.out.splitlines() if line.startswith("length_ratio: ")]
    run = load_run(spelling_run)
    trained = run.trained_model(run.select_params("last").params)
    data = load(run.experiment.config.data, tokenizers_from=run.directory.tokenizers)
    report = task_report("exact_match")(trained, data, spelling_run).metrics
    assert f"{report['validation_length_ratio']:.6g}" == line.removeprefix("length_ratio: ")
    found = decoded_metrics("exact_match", "length_ratio")(trained, data)
    assert found == {"length_ratio": report["validation_length_ratio"]}
    assert "length ratio" in capsys.readouterr().out


def test_metrics_of_a_loss_by_hand():
    """Two documents, four words and two ends, 22 bytes."""
    loss = TokenLoss(math.log(2), 24, ["the cat", "sat on the mat"])
    found = {name: metric.compute(loss) for name, metric in TASKS["language_modeling"].metrics.items()}
    assert found["perplexity"] == pytest.approx(2)
    assert found["bits_per_byte"] == pytest.approx(24 / 21)
    assert found["perplexity_per_word"] == pytest.approx(2 ** (24 / 8))
    assert tasks.perplexity_per_word(TokenLoss(1e6, 10, ["a"])) == math.inf


@pytest.mark.parametrize(
    ("task", "is_language_model", "message"),
    [
        ("blue", False, "task must be one of translation, pronunciation, exact_match, language_modeling, got 'blue'"),
        ("language_modeling", False, "the model is an encoder–decoder: wanted translation or pronunciation or exact"),
        ("translation", True, "measures decoded outputs, and the model is a language model: wanted language_modeling"),
    ],
)
def test_a_task_must_be_known_and_fit_the_model(task, is_language_model, message):
    with pytest.raises(ValueError, match=message):
        check_task(task, is_language_model)


def test_decoded_metrics_are_checked_when_they_are_named():
    with pytest.raises(ValueError, match="task 'translation' has no text metric 'blue': there are exact_match, bleu"):
        decoded_metrics("translation", "blue")
    with pytest.raises(ValueError, match="'language_modeling' has no text metric 'bleu': there are none"):
        decoded_metrics("language_modeling", "bleu")
    with pytest.raises(ValueError, match="task must be one of"):
        task_report("blue")
