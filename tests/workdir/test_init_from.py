"""A run that starts from another's parameters: which it takes, and what it says of the rest."""

import dataclasses
import shutil

import jax
import numpy as np
import pytest

from tests.small_runs import spelling
from train import train
from workdir.restore import load_run


def fine_tuned(spelling_run, workdir, model=None, data=None, **train_options):
    """A run of one step that changes nothing, from the parameters of `spelling_run`."""
    options = {"steps": 1, "init_from": str(spelling_run), "seed": 7, "report": False} | train_options
    experiment = spelling(workdir, f"tsv:{spelling_run.parent}/spelling", **options)
    config = experiment.config
    config = dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, **(model or {})),
        data=dataclasses.replace(config.data, **(data or {})),
        optimizer=dataclasses.replace(config.optimizer, peak_lr=1e-30),
    )
    return dataclasses.replace(experiment, config=config)


def named(tree):
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf) for path, leaf in leaves}


def test_the_same_model_takes_all_and_its_average_starts_there(spelling_run, tmp_path, capsys):
    shutil.copytree(spelling_run, tmp_path / "source")
    there = named(load_run(spelling_run).select_params("last").params)
    experiment = fine_tuned(spelling_run, tmp_path / "run", ema=0.5)
    experiment = dataclasses.replace(
        experiment,
        config=dataclasses.replace(
            experiment.config,
            train=dataclasses.replace(experiment.config.train, init_from=str(tmp_path / "source")),
        ),
    )
    found = named(train(experiment).params)
    count, size = len(there), sum(leaf.size for leaf in there.values())
    line = f"{count} of {count} arrays, {size:,} of {size:,} parameters, are those of {tmp_path / 'source'} (step 150"
    out = capsys.readouterr().out
    assert line in out and "new:" not in out and "unused" not in out
    assert found.keys() == there.keys()
    for name in found:
        np.testing.assert_array_equal(found[name], there[name], err_msg=name)
    average = named(load_run(tmp_path / "run").select_params("ema").params)
    for name in found:
        np.testing.assert_allclose(average[name], there[name], rtol=1e-6, err_msg=name)
    shutil.rmtree(tmp_path / "source")  # a run that has begun does not need it any more
    (tmp_path / "run" / "result.json").unlink()
    train(experiment)


def test_another_width_is_told_array_by_array(spelling_run, tmp_path, capsys):
    there = named(load_run(spelling_run).select_params("last").params)
    found = named(train(fine_tuned(spelling_run, tmp_path / "run", model={"d_ff": 48})).params)
    other = sorted(name for name in there if found[name].shape != there[name].shape)
    assert other and all("feed_forward" in name for name in other)
    for name in found.keys() - set(other):
        np.testing.assert_array_equal(found[name], there[name], err_msg=name)
    out = capsys.readouterr().out
    assert f"{len(there) - len(other)} of {len(there)} arrays, " in out
    assert "reverse: new: decoder/feed_forward/hidden/bias [1, 48], there [1, 32], " in out
    assert "reverse: unused there: decoder/feed_forward/hidden/bias [1, 32], " in out


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"init_from": "nowhere"}, "train.init_from: nowhere is not a run: it is no directory"),
        ({"data": {"tokenizer": "bytes"}}, "was trained with --data.tokenizer characters, and here it is bytes"),
        ({"model": {"d_model": 16, "d_ff": 48}}, "has no parameter with the name and shape of one of this model's"),
    ],
)
def test_what_cannot_be_a_start_is_refused_and_nothing_is_written(spelling_run, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        train(fine_tuned(spelling_run, tmp_path / "run", **changes))
    assert list((tmp_path / "run").iterdir()) == []
