"""Experiments run from start to end, at small scale, and report what they promise."""

import dataclasses
import json
import sysconfig
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from data.datasets.dates import Dates, DatesConfig
from data.datasets.stdlib import Stdlib, StdlibConfig
from data.prepare import prepare_builder
from experiments import dates, modern_char, stdlib_char
from experiments.registry import list_experiments, load_experiment
from model.config import LanguageModelConfig
from model.positions import rotary_positions
from tests.data.in_memory import load_from
from train import train


def shrunk(experiment, workdir, steps):
    config = experiment.config
    return dataclasses.replace(
        experiment,
        config=dataclasses.replace(
            config,
            data=dataclasses.replace(config.data, batch_size=8, buckets=1),
            model=dataclasses.replace(config.model, d_model=16, num_heads=2, d_ff=16),
            train=dataclasses.replace(config.train, steps=steps),
            workdir=str(workdir),
        ),
    )


def data_of(builder):
    """For `Experiment.data`: a dataset that is prepared already."""
    return lambda config, tokenizers_from: load_from(builder, config.data, tokenizers_from)


@pytest.fixture(scope="module")
def few_languages(tmp_path_factory):
    return prepare_builder(
        Dates,
        str(tmp_path_factory.mktemp("tfds")),
        DatesConfig(
            name="few",
            languages=("ko", "en", "ar", "am", "eu", "de"),
            train_examples=60,
            validation_examples=6,
            test_examples=9,
        ),
    )


@pytest.mark.slow  # 23 s
def test_dates_reports_languages_samples_and_figures(few_languages, tmp_path, capsys):
    experiment = shrunk(dates.experiment(), tmp_path / "run", steps=6)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Glyph")  # Hangul must be drawn
        result = train(dataclasses.replace(experiment, data=data_of(few_languages)))
    assert set(result.figures) == {"training", "attention_korean", "attention_english"}
    for path in result.figures.values():
        assert path.read_bytes().startswith(b"\x89PNG")
    assert result.metrics["languages"] == 6 and result.metrics["test_examples"] == 54
    assert len(result.metrics["worst_languages"]) == 6
    assert 0 <= result.metrics["test_worst_language"] <= result.metrics["test_exact_match"] <= 1
    out = capsys.readouterr().out
    assert "exactly right, on days that no training example has" in out and "worst ten of 6 languages" in out
    assert all(f"  {line}  ->  " in out for line in dates.SHOWN)
    assert "data:image/png" in result._repr_html_()
    # What the run directory holds is what the call returned.
    assert json.loads((tmp_path / "run" / "result.json").read_text())["metrics"] == result.metrics


@pytest.mark.slow
def test_modern_char_is_compared_with_stdlib_char_at_equal_steps(tmp_path, capsys):
    source = StdlibConfig(name="email", root=f"{sysconfig.get_path('stdlib')}/email")
    email = prepare_builder(Stdlib, str(tmp_path / "tfds"), source)
    experiment = shrunk(modern_char.experiment(), tmp_path / "run", steps=4)
    result = train(dataclasses.replace(experiment, data=data_of(email)))
    baseline = json.loads((tmp_path / "run" / "stdlib_char" / "result.json").read_text())["metrics"]["test_nats"]
    assert result.metrics["stdlib_char_test_nats"] == baseline
    assert (
        f"test_nats: modern_char {result.metrics['test_nats']:.4f}, stdlib_char {baseline:.4f}"
        in capsys.readouterr().out
    )
    layer = result.params["layers"]
    assert set(layer["feed_forward"]) == {"gate", "hidden", "output"}
    assert set(layer["self_attention_norm"]) == {"scale"} and "positions" not in result.params


def test_modern_char_has_as_many_parameters_as_stdlib_char():
    sizes = []
    for module in (modern_char, stdlib_char):
        experiment = module.experiment()
        model = experiment.model(experiment.config, {"text": 100})
        params = jax.eval_shape(lambda model=model: model.init(jax.random.key(0), jnp.ones((1, 8), jnp.int32)))
        sizes.append(sum(leaf.size for leaf in jax.tree.leaves(params)))
    assert abs(sizes[0] - sizes[1]) < 0.02 * sizes[1]


def test_rotary_scores_depend_on_distances_only():
    query, key = jax.random.normal(jax.random.key(1), (2, 1, 1, 1, 32))
    turn = rotary_positions(LanguageModelConfig(d_model=32, num_heads=1, max_length=64))

    def score(query_position, key_position):
        turned = (turn(x, jnp.array([[at]])) for x, at in ((query, query_position), (key, key_position)))
        return float((next(turned) * next(turned)).sum())

    assert score(5, 3) == pytest.approx(score(25, 23), abs=1e-4)
    assert abs(score(5, 3) - score(5, 4)) > 1e-3


def test_rotary_positions_reach_as_far_as_the_model():
    """The table was 1,024 long whatever the model's longest sequence was, and NaN followed."""
    config = LanguageModelConfig(d_model=4, num_heads=1, max_length=1500)
    heads = jnp.ones((1, 1, 1, 4))
    turned = np.asarray(rotary_positions(config)(heads, jnp.array([[1499]])))[0, 0, 0]
    angles = 1499.0 * np.array([1.0, 0.01])
    wanted = [*(np.cos(angles) - np.sin(angles)), *(np.cos(angles) + np.sin(angles))]
    np.testing.assert_allclose(turned, wanted, atol=1e-6)
    assert np.isnan(rotary_positions(config)(heads, jnp.array([[1500]]))).all()


@pytest.mark.parametrize(
    ("widths", "named"),
    [({"d_model": 10, "num_heads": 2}, "d_model=10 / num_heads=2 = 5"), ({"d_model": 8, "d_k": 7}, "d_k=7")],
)
def test_rotary_positions_refuse_an_odd_head_width_in_one_line(widths, named):
    """Before anything is traced, by the experiments that have them."""
    for module in (dates, modern_char):
        config = module.experiment().config
        config = dataclasses.replace(config, model=dataclasses.replace(config.model, **widths))
        with pytest.raises(ValueError, match=f"^rotary positions .* an even head width, got {named}$"):
            module.experiment().model(config, {"source": 9, "target": 9, "text": 9})


@pytest.mark.parametrize("name", sorted(list_experiments()))
def test_every_experiment_says_its_command(name):
    experiment, doc = load_experiment(name)
    assert experiment.name == name
    assert f"python train.py {name}" in doc
