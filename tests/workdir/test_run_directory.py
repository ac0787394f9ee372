"""Run directories: each belongs to one config."""

import json
import math
import multiprocessing
import re

import pytest

from workdir.run_directory import RunDirectory, RunDirectoryError, open_run_directory

CONFIG = {
    "name": "dates",
    "optimizer": {"peak_lr": 0.1 + 0.2, "betas": (0.9, 0.98)},
    "train": {"steps": 100, "workdir": ""},
    "hooks": {},
}


def changed(**values):
    config = json.loads(json.dumps(CONFIG))
    for path, value in values.items():
        *parents, key = path.split("__")
        node = config
        for parent in parents:
            node = node[parent]
        node[key] = value
    return config


def begun(directory, config=CONFIG):
    """The directory of a run that has begun."""
    run = open_run_directory(directory, config)
    with run.undo_on_failure(config) as begin:
        begin()
    return run


def files(directory):
    return {path.relative_to(directory): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_new_directory_gets_the_config_with_exact_floats(tmp_path):
    assert not list(open_run_directory(tmp_path / "runs" / "dates", CONFIG).path.iterdir())
    run = begun(tmp_path / "runs" / "dates")
    assert json.loads(run.config.read_text()) == {**CONFIG, "optimizer": {"peak_lr": 0.1 + 0.2, "betas": [0.9, 0.98]}}
    assert run.config.read_text().index('"hooks"') < run.config.read_text().index('"name"')
    assert [path.name for path in run.path.iterdir()] == ["config.json"]
    assert run.finished is None
    assert {p.parent for p in (run.checkpoints, run.figures, run.tokenizers, run.metrics)} == {run.path}


def test_the_same_config_resumes_and_changes_nothing(tmp_path):
    run = begun(tmp_path)
    run.metrics.write_text("kept\n")
    before = files(tmp_path)
    assert open_run_directory(tmp_path, CONFIG) == run
    assert files(tmp_path) == before


def test_another_config_is_refused_by_its_keys_and_changes_nothing(tmp_path):
    run = begun(tmp_path)
    run.metrics.write_text("kept\n")
    before = files(tmp_path)
    other = changed(optimizer__peak_lr=1e-3, train__steps=500)
    del other["name"]
    with pytest.raises(RunDirectoryError) as caught:
        open_run_directory(tmp_path, other)
    message = str(caught.value)
    assert 'name is "dates" there and absent here' in message
    assert "optimizer.peak_lr is 0.30000000000000004 there and 0.001 here" in message
    assert "train.steps is 100 there and 500 here" in message
    assert message.endswith("choose another --workdir") and "\n" not in message
    assert files(tmp_path) == before


@pytest.mark.parametrize("value", [100.0, True, "100", [100], {"x": 100}, None])
def test_a_value_of_another_type_is_another_config(tmp_path, value):
    begun(tmp_path)
    with pytest.raises(RunDirectoryError, match=r"train\.steps"):
        open_run_directory(tmp_path, changed(train__steps=value))


def test_many_differences_are_counted(tmp_path):
    begun(tmp_path, {str(i): i for i in range(10)})
    with pytest.raises(RunDirectoryError, match=re.escape("2 is 2 there and -2 here, and 7 more; ")):
        open_run_directory(tmp_path, {str(i): -i if i else "x" for i in range(10)})


def test_a_directory_of_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunDirectoryError, match=r"holds thesis\.tex but no config\.json"):
        open_run_directory(tmp_path, CONFIG)
    with pytest.raises(RunDirectoryError, match=r"thesis\.tex is not a directory"):
        open_run_directory(tmp_path / "thesis.tex", CONFIG)
    with pytest.raises(RunDirectoryError, match="is not a directory"):
        open_run_directory(tmp_path / "thesis.tex" / "run", CONFIG)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("place", ["x" * 300, "/proc/nothing/here"])
def test_a_directory_that_cannot_be_made_is_named_with_its_option(tmp_path, place):
    with pytest.raises(RunDirectoryError, match=r"^--workdir .*(x|here) cannot be made: "):
        open_run_directory(tmp_path / place, {"a": 1})


def test_a_broken_config_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(RunDirectoryError, match=r"config\.json is not readable JSON"):
        open_run_directory(tmp_path, CONFIG)
    assert (tmp_path / "config.json").read_text() == "{"


def test_a_config_holds_finite_numbers(tmp_path):
    with pytest.raises(ValueError, match=r"optimizer\.peak_lr is inf"):
        open_run_directory(tmp_path / "run", changed(optimizer__peak_lr=math.inf))
    assert not (tmp_path / "run").exists()


def test_the_result_marks_the_run_as_finished(tmp_path):
    run = begun(tmp_path)
    run.write("result.json", {"exact_match": 0.1 + 0.2, "worst": [["eu", 0.97]], "perplexity": math.inf})
    assert open_run_directory(tmp_path, CONFIG).finished == {
        "exact_match": 0.1 + 0.2, "worst": [["eu", 0.97]], "perplexity": None
    }  # fmt: skip
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "result.json"]


def _race(workdir, steps, barrier, answers):
    barrier.wait()
    try:
        begun(workdir, {"steps": steps}).metrics.touch()
        answers.put(steps)
    except RunDirectoryError:
        answers.put(None)


@pytest.mark.parametrize("steps", [(1, 1, 1, 1), (1, 2, 1, 2)], ids=["same", "different"])
def test_racing_processes_agree_on_one_config(tmp_path, steps):
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(len(steps)), context.Queue()
    processes = [context.Process(target=_race, args=(tmp_path / "run", n, barrier, answers)) for n in steps]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    given = [answers.get(timeout=5) for _ in steps]
    winner = json.loads((tmp_path / "run" / "config.json").read_text())["steps"]
    assert sorted(given, key=str) == sorted([n if n == winner else None for n in steps], key=str)


def write_all(run):
    """What training writes before its first step is recorded."""
    for folder in (run.tokenizers, run.path / "tensorboard", run.checkpoints / "1.orbax-checkpoint-tmp"):
        folder.mkdir(parents=True)
        (folder / "file").write_text("x")
    for name in ("data.json", "data_spec.json"):
        run.write(name, {})
    run.metrics.touch()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_what_fails_before_a_step_is_kept_gives_the_directory_free(tmp_path, error):
    run = open_run_directory(tmp_path / "run", CONFIG)
    with pytest.raises(error), run.undo_on_failure(CONFIG) as begin:
        begin()
        write_all(run)
        (run.path / "notes.txt").write_text("mine")
        raise error
    assert [path.name for path in run.path.iterdir()] == ["notes.txt"]
    (run.path / "notes.txt").unlink()
    begun(tmp_path / "run", CONFIG | {"seed": 9})


@pytest.mark.parametrize("kept", ["a row", "a checkpoint", "a run from before"])
def test_what_fails_after_that_leaves_the_run(tmp_path, kept):
    run = begun(tmp_path / "run") if kept == "a run from before" else open_run_directory(tmp_path / "run", CONFIG)
    with pytest.raises(ValueError), run.undo_on_failure(CONFIG) as begin:
        begin()
        write_all(run)
        if kept == "a row":
            run.metrics.write_text("{}\n")
        elif kept == "a checkpoint":
            (run.checkpoints / "1").mkdir()
        before = files(run.path)
        raise ValueError
    assert files(run.path) == before and run.config.exists()


def test_a_directory_without_progress_may_be_removed_and_the_message_says_so(tmp_path):
    """A process that was killed in its first step cannot take anything back, and one that runs must not lose it."""
    begun(tmp_path)
    with pytest.raises(RunDirectoryError, match="has kept no step yet; if no process is training it, remove it, or"):
        open_run_directory(tmp_path, changed(train__steps=9))


def test_more_steps_and_what_changes_nothing_learned_may_be_others(tmp_path):
    old = changed(train={"steps": 100, "log_every": 50, "report": True})
    new = changed(train={"steps": 400, "log_every": 20, "report": True})
    run = open_run_directory(tmp_path, old)
    with run.undo_on_failure(old) as begin:
        begin()
    run.write("result.json", {"metrics": {}})
    assert run.changes(old) == {}
    assert open_run_directory(tmp_path, new).changes(new) == {"train.steps": (100, 400), "train.log_every": (50, 20)}
    assert json.loads(run.config.read_text()) == old and run.finished is not None  # until a step is taken
    with run.undo_on_failure(new) as begin:
        begin()
    assert json.loads(run.config.read_text()) == new and run.finished is None
    assert json.loads((tmp_path / "result_100.json").read_text()) == {"metrics": {}}
    with pytest.raises(RunDirectoryError, match=r"train\.steps is 400 there and 100 here; "):
        open_run_directory(tmp_path, old)  # fewer steps would be another run


@pytest.mark.parametrize("content", [b"{", b"", b"[1]", b"\xff\xfe"])
def test_a_damaged_result_is_named(tmp_path, content):
    (tmp_path / "result.json").write_bytes(content)
    with pytest.raises(RunDirectoryError, match=r"result\.json is damaged .*: remove it"):
        _ = RunDirectory(tmp_path).finished
