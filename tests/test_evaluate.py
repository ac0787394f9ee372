"""evaluate.py: the numbers are those of the texts it leaves behind, and no other setting's are overwritten."""

import json
import shutil
import subprocess
import sys

import pytest

from evaluate import main
from evaluation.text_metrics import bleu
from tests.scripts import in_a_process, in_this_process, with_nan_parameters
from workdir.evaluation_files import save_evaluation
from workdir.run_directory import RunDirectory


@pytest.fixture
def evaluate(monkeypatch):
    return lambda *words: in_this_process(monkeypatch, main, *words)


def files(run) -> dict[str, bytes]:
    folder = run / "evaluation"
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def sacrebleu(references, hypotheses, *words: str) -> dict:
    """What the command itself says."""
    command = [sys.executable, "-m", "sacrebleu", references, "-i", hypotheses, "-w", "4", *words]
    return json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def test_a_checkpoint_that_is_not_whole_is_passed_over(evaluate, tmp_path, spelling_run):
    copy = shutil.copytree(spelling_run, tmp_path / "copy")
    shutil.rmtree(copy / "checkpoints" / "150" / "data")
    done = evaluate(copy, "--split", "validation")
    assert done.code == 0 and "step 120, the last" in done.err
    assert "checkpoints/150 is passed over: it has no data\n" in done.err


def test_the_command_sacrebleu_gives_the_same_figures(spelling_run):
    """A real process; the outputs and references it has kept, scored again by the field's own command."""
    words = [spelling_run, "--split", "validation", "--beam", 4, "--task", "translation", "--tokenized"]
    done = in_a_process("evaluate.py", *words)
    assert done.code == 0, done.err
    folder = spelling_run / "evaluation"
    name = "validation-step150-beam4-penalty0.6-translation-tokenized"
    record = json.loads((folder / f"{name}.json").read_text())
    metrics, signatures = record["metrics"], record["signatures"]
    texts = [folder / f"{name}.{kind}.txt" for kind in ("references", "hypotheses")]
    for key, options in (
        ("bleu", ["-m", "bleu"]),
        ("chrf", ["-m", "chrf"]),
        ("tokenized_bleu", ["-m", "bleu", "--tokenize", "none", "--force"]),
    ):
        command = sacrebleu(*texts, *options)
        assert command["score"] == pytest.approx(metrics[key], abs=1e-4), key
        assert command["signature"] == signatures[key]
        assert f"{key}: " in done.out and signatures[key] in done.out
    assert 0 < metrics["chrf"] <= 100 and "tok:none" in signatures["tokenized_bleu"]
    assert record["decoding"]["beam"] == 4 and record["checkpoint"] == "last"
    assert [len(path.read_text().splitlines()) for path in texts] == [12, 12] and metrics["examples"] == 12


def test_the_files_of_the_readme_s_example_give_45_07(tmp_path):
    """sacreBLEU's own example through our wrapper, our files and its command."""
    outputs = ["The dog bit the man.", "It wasn't surprising.", "The man had just bitten him."]
    references = ["The dog bit the man.", "It was not unexpected.", "The man bit him first."]
    score = bleu(outputs, references)
    assert round(score.score, 2) == 45.07
    paths = save_evaluation(RunDirectory(tmp_path), "x", {}, {"hypotheses": outputs, "references": references})
    assert [paths[kind].read_text().count("\n") for kind in ("hypotheses", "references")] == [3, 3]
    assert sacrebleu(paths["references"], paths["hypotheses"])["score"] == pytest.approx(score.score, abs=1e-4)


@pytest.mark.slow
def test_settings_have_files_of_their_own(evaluate, spelling_run):
    first = evaluate(spelling_run, "--split", "validation")
    assert first.code == 0, first.err
    kept = {name: content for name, content in files(spelling_run).items() if "validation-step150-greedy" in name}
    assert len(kept) == 4
    for words in (["--beam", 2], ["--beam", 2, "--length_penalty", 1], ["--checkpoint", "average:2"]):
        before = files(spelling_run)
        assert evaluate(spelling_run, "--split", "validation", *words).code == 0
        after = files(spelling_run)
        assert len(after) == len(before) + 4 and before.items() <= after.items()
    assert evaluate(spelling_run, "--split", "validation").out == first.out
    assert kept.items() <= files(spelling_run).items() and not [name for name in files(spelling_run) if "tmp" in name]


def test_pronunciations_count_a_word_once_with_all_its_answers(evaluate, spelling_run):
    done = evaluate(spelling_run, "--task", "pronunciation", "--batch_size", 3)
    assert done.code == 0, done.err
    (name,) = [name for name in files(spelling_run) if name.endswith("pronunciation.json")]
    metrics = json.loads(files(spelling_run)[name])["metrics"]
    assert (metrics["examples"], metrics["scored"]) == (20, 18)
    assert metrics["word_error_rate"] == pytest.approx(1 - metrics["exact_match"])
    assert "A A\tA B" in files(spelling_run)[name.replace(".json", ".references.txt")].decode()
    # The greedy, teacher-forced exact match of training and that of decoding are one number.
    validation = json.loads((spelling_run / "result.json").read_text())["metrics"]
    evaluate(spelling_run, "--split", "validation")
    record = json.loads(files(spelling_run)["validation-step150-greedy.json"])["metrics"]
    assert record["exact_match"] == pytest.approx(validation["validation_exact_match"])
    assert record["nats_per_token"] == pytest.approx(validation["validation_loss"], rel=1e-5)


def test_a_language_model_is_measured_over_the_whole_split(evaluate, text_run):
    done = evaluate(text_run, "--split", "validation")
    assert done.code == 0, done.err
    record = json.loads(files(text_run)["validation-step60.json"])
    metrics = record["metrics"]
    validation = json.loads((text_run / "result.json").read_text())["metrics"]
    assert metrics["nats_per_token"] == pytest.approx(validation["validation_loss"], rel=1e-5)
    assert metrics["perplexity"] == pytest.approx(2.718281828 ** metrics["nats_per_token"])
    text = ("the cat sat. the dog ran. " * 40 + "été")[-105:]
    assert metrics["tokens"] == len(text) + 1  # and its end
    bits = metrics["nats_per_token"] * metrics["tokens"] / 0.69314718 / len(text.encode())
    assert metrics["bits_per_byte"] == pytest.approx(bits)
    for words in (["--beam", 4], ["--group", "x"], ["--tokenized"]):
        refusal = evaluate(text_run, "--split", "validation", *words)
        assert refusal.code == 2 and "is a language model" in refusal.err
    refusal = evaluate(text_run, "--split", "validation", "--task", "translation")
    assert refusal.code == 2 and "the model is a language model: wanted language_modeling" in refusal.err


def test_outputs_that_are_not_numbers_end_in_one_line(evaluate, spelling_run, text_run, monkeypatch):
    with_nan_parameters(monkeypatch)
    before = files(spelling_run), files(text_run)
    for words in ([], ["--sample"], ["--beam", 2]):
        done = evaluate(spelling_run, "--split", "validation", *words)
        assert (done.code, done.out) == (1, "") and "line 1: the model's outputs are not" in done.err.splitlines()[-1]
    done = evaluate(text_run, "--split", "validation")
    assert (done.code, done.out) == (1, "")
    assert "the loss on validation is nan" in done.err.splitlines()[-1]
    assert (files(spelling_run), files(text_run)) == before


def test_a_place_that_cannot_be_written_is_found_before_the_work(evaluate, tmp_path, spelling_run):
    copy = shutil.copytree(spelling_run, tmp_path / "copy")
    shutil.rmtree(copy / "evaluation", ignore_errors=True)
    (copy / "evaluation").write_text("mine")
    done = evaluate(copy, "--split", "validation")
    assert done.code == 1 and done.out == "" and "step 150" not in done.err
    assert "File exists" in done.err.splitlines()[-1] and (copy / "evaluation").read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--split", "tset"], "has no split 'tset': there are train, validation, test"),
        (["--spilt", "test"], "perhaps you meant --split"),
        (
            ["--task", "foo"],
            "--task must be one of 'experiment', 'translation', 'pronunciation', 'exact_match', 'language_modeling'",
        ),
        (["--checkpoint", "average:9"], "average:9 wants the newest 9"),
        (["--beam", "3", "--nbest", "2"], "--nbest is for generate.py"),
        (["--max_tokens", "1000"], "outputs of 1000 tokens are longer than the model's"),
        (["--group", "colour"], "no 'colour' to group them by: there are source, target"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_in_one_line(evaluate, spelling_run, words, message):
    before = files(spelling_run)
    done = evaluate(spelling_run, *words)
    assert done.code in (1, 2) and done.out == "" and message in done.err.splitlines()[-1]
    assert files(spelling_run) == before
