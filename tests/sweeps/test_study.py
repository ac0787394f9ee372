"""The trials of a study: which there are, who takes one, what one is. Nothing is trained here."""

import pytest
from optuna.trial import TrialState

from sweeps import study as study_module
from sweeps.options import parse_sweep
from sweeps.report import ranked, write_report
from sweeps.study import Study
from workdir.run_directory import RunDirectoryError

GRID = ["--sampler", "grid", "--space", "optimizer.peak_lr=1e-3,2e-3,4e-3"]


def sweep(tmp_path, *words):
    return parse_sweep("python sweep.py", ["reverse", *words, "--workdir", str(tmp_path / "sweep")])


def finish_all(study, value):
    """Take and complete the trials until none is left; `value` of (params, seed) is the metric."""
    taken = []
    while (started := study.take()) is not None:
        taken.append((started.trial.number, started.params, started.seed))
        study.complete(started, value(started.params, started.seed))
        started.lock.close()
    return taken


def test_a_grid_has_each_point_with_each_seed_once(tmp_path):
    study = Study(sweep(tmp_path, *GRID, "model.d_model=32,64", "train.seed=7,8"))
    taken = finish_all(study, lambda params, seed: 1.0)
    assert len(taken) == 12
    seen = {(params["optimizer.peak_lr"], params["model.d_model"], seed) for _, params, seed in taken}
    assert seen == {(lr, width, seed) for lr in (1e-3, 2e-3, 4e-3) for width in (32, 64) for seed in (7, 8)}
    assert [number for number, _, _ in taken] == list(range(12))


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_the_seeds_of_a_configuration_share_its_values(tmp_path, sampler):
    words = ["--sampler", sampler, "--trials", "5", "--space", "optimizer.peak_lr=log:1e-4:1e-2", "train.seed=0,1"]
    taken = finish_all(Study(sweep(tmp_path, *words)), lambda params, seed: abs(params["optimizer.peak_lr"] - 1e-3))
    assert len(taken) == 10
    for (_, first, zero), (_, second, one) in zip(taken[::2], taken[1::2], strict=True):
        assert first == second and (zero, one) == (0, 1)
    assert len({params["optimizer.peak_lr"] for _, params, _ in taken}) == 5
    assert all(1e-4 <= params["optimizer.peak_lr"] <= 1e-2 for _, params, _ in taken)


def test_a_random_search_is_the_same_in_pieces_and_in_one(tmp_path):
    words = ["--sampler", "random", "--trials", "6", "--space", "model.dropout=uniform:0:0.5"]
    whole = finish_all(Study(sweep(tmp_path / "whole", *words)), lambda params, seed: 1.0)
    pieces = []
    for _ in range(6):  # a process for each
        study = Study(sweep(tmp_path / "pieces", *words))
        started = study.take()
        pieces.append((started.trial.number, started.params, started.seed))
        study.complete(started, 1.0)
        started.lock.close()
    assert pieces == whole


def test_tpe_looks_where_it_was_good(tmp_path):
    """The median of its draws in a bowl is far nearer to the bottom than that of the ten random ones at the start."""
    words = ["--trials", "25", "--space", "model.dropout=uniform:0:1"]

    def bowl(params, seed=0):
        return (params["model.dropout"] - 0.3) ** 2

    taken = finish_all(Study(sweep(tmp_path, *words)), bowl)
    values = [bowl(params) for _, params, _ in taken]
    assert sorted(values[10:])[7] < sorted(values[:10])[5] / 4


def test_two_processes_never_have_the_same_trial(tmp_path):
    first, second = (Study(sweep(tmp_path, *GRID)) for _ in range(2))
    taken = [study.take() for study in (first, second, first, second)]
    assert [started and started.trial.number for started in taken] == [0, 1, 2, None]
    assert first.unfinished() == 3


def test_a_trial_whose_process_is_gone_goes_on_where_it_is(tmp_path):
    words = ["--trials", "2", "--space", "optimizer.peak_lr=log:1e-4:1e-2"]
    first = Study(sweep(tmp_path, *words))
    lost = first.take()
    second = Study(sweep(tmp_path, *words))
    other = second.take()
    assert other.trial.number == 1, "while its process lives, a trial is nobody else's"
    lost.lock.close()  # as the kernel does when the process ends, however it ends
    found = second.take()
    assert found.resumed and found.trial.number == 0 and found.params == lost.params
    second.complete(found, 1.0)
    second.complete(other, 2.0)
    assert [trial.state for trial in second.study.trials] == [TrialState.COMPLETE] * 2


def test_another_machine_leaves_a_trial_alone_until_there_is_no_sign_of_life(tmp_path, monkeypatch):
    """Two directories with one database: the lock of the one says nothing about the other."""
    storage = ["--storage", f"sqlite:///{tmp_path}/shared.db"]
    here = sweep(tmp_path / "here", *GRID, *storage)
    there = sweep(tmp_path / "there", *GRID, *storage)
    first, second = Study(here), Study(there)
    lost = first.take()
    others = [second.take() for _ in range(2)]
    assert [started.trial.number for started in others] == [1, 2]
    assert second.take() is None and second.trials()[0].state == TrialState.RUNNING
    monkeypatch.setattr(study_module, "LOST", 0.0)
    assert second.take() is None
    trial = second.trials()[0]
    assert trial.state == TrialState.FAIL and "no sign of life from" in trial.user_attrs["reason"]
    lost.lock.close()


def test_more_trials_can_be_asked_for_later_and_nothing_else(tmp_path):
    words = ["--space", "optimizer.peak_lr=log:1e-4:1e-2", "--trials"]
    assert len(finish_all(Study(sweep(tmp_path, *words, "3")), lambda params, seed: 1.0)) == 3
    assert [number for number, _, _ in finish_all(Study(sweep(tmp_path, *words, "5")), lambda *_: 1.0)] == [3, 4]
    with pytest.raises(RunDirectoryError, match=r"has another sweep: train\.steps is 1000 there and 7 here"):
        Study(sweep(tmp_path, *words, "5", "--train.steps", "7"))
    with pytest.raises(RunDirectoryError, match="sampler is"):
        Study(sweep(tmp_path, *words, "5", "--sampler", "random"))
    with pytest.raises(RunDirectoryError, match=r"space\.optimizer\.peak_lr is .* there and .* here"):
        Study(sweep(tmp_path, "--space", "optimizer.peak_lr=log:1e-3:1e-2"))


def test_a_report_needs_none_of_the_sweep_s_options(tmp_path, capsys):
    words = [
        "--sampler",
        "random",
        "--trials",
        "3",
        "--space",
        "model.dropout=uniform:0:1",
        "model.num_kv_heads=None,1",
    ]
    first = Study(sweep(tmp_path, *words, "train.seed=0,1", "--train.steps", "7", "--train.best_metric", "accuracy"))
    finish_all(first, lambda params, seed: params["model.dropout"])
    write_report(first)
    wanted = capsys.readouterr().out
    study = Study(sweep(tmp_path), create=False)
    assert study.sweep.runs == 6 and study.sweep.record == first.sweep.record
    write_report(study)
    assert capsys.readouterr().out == wanted and "--train.steps 7" in wanted


def test_a_directory_of_something_else_is_refused(tmp_path):
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "config.json").write_text("{}")
    with pytest.raises(RunDirectoryError, match=r"holds config\.json but no study\.db"):
        Study(sweep(tmp_path, *GRID))
    assert [path.name for path in (tmp_path / "sweep").iterdir()] == ["config.json"]


def test_a_database_that_does_not_answer_is_one_line_without_the_password(tmp_path):
    url = f"sqlite:///{tmp_path}/no/such/folder/study.db"
    with pytest.raises(RunDirectoryError, match="the study cannot be opened in") as error:
        Study(sweep(tmp_path, *GRID, "--storage", url))
    assert "\n" not in str(error.value)


def test_the_table_has_means_and_spreads_over_seeds_the_best_first(tmp_path, capsys):
    """Values by hand: the standard deviation of a and b is |a − b| / √2."""
    study = Study(sweep(tmp_path, *GRID, "train.seed=0,1"))
    values = {(1e-3, 0): 0.5, (1e-3, 1): 0.7, (2e-3, 0): 0.3, (2e-3, 1): 0.5, (4e-3, 0): 0.1}
    while (started := study.take()) is not None:
        key = started.params["optimizer.peak_lr"], started.seed
        if key in values:
            study.complete(started, values[key])
        else:
            study.fail(started, "loss is NaN at step 3")
        started.lock.close()
    rows = ranked(study)
    assert [row.params["optimizer.peak_lr"] for row in rows] == [4e-3, 2e-3, 1e-3]
    assert [row.mean for row in rows] == pytest.approx([0.1, 0.4, 0.6])
    assert rows[0].spread is None and rows[1].spread == pytest.approx(0.2 / 2**0.5)

    assert write_report(study) == 1
    out = capsys.readouterr().out
    assert "6 trials: 5 finished, 1 failed" in out
    assert "0.1000 (1 of 2 seeds)" in out and "0.4000 ± 0.1414" in out
    assert "trial 0005 (optimizer.peak_lr=0.004): loss is NaN at step 3" in out
    assert "python train.py reverse --optimizer.peak_lr 0.004 --workdir" in out
    folder = tmp_path / "sweep"
    assert "| 2 | 0.002 | 0.4000 ± 0.1414 | 0002, 0003 |" in (folder / "report.md").read_text()
    lines = (folder / "trials.csv").read_text().splitlines()
    assert lines[0].startswith("trial,state,optimizer.peak_lr,train.seed,loss") and len(lines) == 7
    assert lines[1].startswith("0,finished,0.001,0,0.5,")
    for name in ("history", "parameters", "learning_rate"):
        assert (folder / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_a_higher_metric_can_be_the_better_one(tmp_path):
    study = Study(sweep(tmp_path, *GRID, "--train.best_metric", "exact_match"))
    finish_all(study, lambda params, seed: params["optimizer.peak_lr"])
    assert [row.mean for row in ranked(study)] == [4e-3, 2e-3, 1e-3]


def test_importances_tell_what_matters(tmp_path):
    words = ["--sampler", "random", "--trials", "20"]
    words += ["--space", "model.dropout=uniform:0:0.9", "optimizer.weight_decay=uniform:0:1"]
    study = Study(sweep(tmp_path, *words))
    finish_all(study, lambda params, seed: params["model.dropout"] ** 2)
    write_report(study)
    from sweeps.report import _importances

    shares = _importances(study)
    assert shares["model.dropout"] > 3 * shares["optimizer.weight_decay"]
    assert (tmp_path / "sweep" / "figures" / "importances.png").exists()
