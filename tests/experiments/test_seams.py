"""What a researcher changes from one new file: data, an auxiliary loss, optimizer, schedule, a model of one's own."""

import dataclasses
import json

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from data.config import DataConfig
from data.loading import load_examples
from experiments.experiment import STANDARD_METRICS, Config, Experiment
from model.config import LanguageModelConfig, TransformerConfig
from model.language_model import LanguageModel
from train import train
from training.config import OptimizerConfig, TrainConfig
from training.loss import token_loss
from training.step import make_train_step
from workdir.train_state import new_state


class Recurrent(nn.Module):
    """A GRU language model: what training asks of a model are `features` and `logits`, and Flax's init and apply."""

    vocab_size: int

    def setup(self):
        self.embedding = nn.Embed(self.vocab_size, 16)
        self.recurrence = nn.RNN(nn.GRUCell(16))
        self.output = nn.Dense(self.vocab_size)

    def __call__(self, tokens):
        return self.logits(self.features(tokens))

    def features(self, tokens, dropout_rate=None, attention_dropout_rate=None):
        return self.recurrence(self.embedding(tokens))

    def logits(self, features):
        return self.output(features)


def z_loss(logits, labels, mask):
    """Chowdhery et al. 2022, §5."""
    log_z = jax.nn.logsumexp(logits, axis=-1)
    return {"z_loss": (1e-4 * jnp.where(mask, log_z**2, 0).sum(), mask.sum())}


def counting(config, tokenizers_from):
    """Data that are generated."""
    texts = ({"text": " ".join(str((start + n) % 10) for n in range(40))} for start in range(20))
    splits = {"train": texts, "validation": [{"text": "1 2 3 4 5 6 7"}]}
    return load_examples(splits, config.data, tokenizers_from, name="counting")


def experiment(workdir):
    return Experiment(
        "stdlib_char",
        Config(
            DataConfig("counting", batch_size=4, max_target_length=16),
            LanguageModelConfig(num_layers=1, d_model=16, num_heads=2, d_ff=16, max_length=16),
            OptimizerConfig(peak_lr=1e-2),
            TrainConfig(steps=40, log_every=10, evaluate_every=20, save_every=20, best_metric="z_loss"),
            str(workdir),
        ),
        data=counting,
        model=lambda config, vocab_sizes: Recurrent(vocab_sizes["text"]),
        loss=lambda config, model: token_loss(model, extra=z_loss),
        optimizer=lambda config: lambda hyper, rate: optax.lion(rate),
        schedule=lambda config: lambda update, hyper: hyper["peak_lr"] / jnp.sqrt(update / 4.0),
        metrics=STANDARD_METRICS | {"z_loss": "min"},
    )


def test_a_model_data_loss_optimizer_and_schedule_of_ones_own_are_trained_logged_and_found_again(tmp_path):
    result = train(experiment(tmp_path / "run"))
    assert result.metrics["validation_loss"] < 2.0  # of ln 13 = 2.6
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    for split in ("train", "validation"):
        assert all(0 < row["z_loss"] < 0.1 for row in rows if row["split"] == split)
    rates = [row["learning_rate"] for row in rows if row["split"] == "train"]
    np.testing.assert_allclose(rates, 1e-2 / np.sqrt(np.array([10, 20, 30, 40]) / 4.0), rtol=1e-5)
    assert rows[-1]["objective"] == pytest.approx(rows[-1]["loss"] + rows[-1]["z_loss"])
    assert (tmp_path / "run" / "figures" / "training.png").stat().st_size > 10_000
    again = train(experiment(tmp_path / "run"))
    jax.tree.map(np.testing.assert_array_equal, again.params, result.params)


def test_a_metric_of_its_own_has_a_panel(tmp_path):
    from analysis.curves import training_curves

    rows = [{"step": n, "split": "train", "loss": 1.0, "z_loss": 0.1, "tokens": 5} for n in (1, 2)]
    figure = training_curves(rows, tmp_path / "curves.png")
    assert [axis.get_ylabel() for axis in figure.axes] == ["loss (nats per token)", "z loss"]


@pytest.mark.parametrize("chunk", [0, 5])
def test_an_auxiliary_loss_is_added_to_the_gradient_and_padding_is_not_seen(chunk):
    model = LanguageModel(LanguageModelConfig(num_layers=1, d_model=8, num_heads=2, d_ff=8, max_length=8), 11)
    tokens = jax.random.randint(jax.random.key(0), (2, 8), 1, 11)
    params = model.init(jax.random.key(1), tokens)["params"]
    mask = jnp.arange(8)[None] < jnp.array([[8], [5]])
    batch = {"inputs": {"tokens": tokens}, "labels": tokens, "weights": mask}
    loss = token_loss(model, chunk, extra=z_loss)

    def objective(params):
        return loss(params, batch, None, {})["objective"][0]

    def by_hand(params):
        logits = model.apply({"params": params}, tokens)
        log_z = jax.nn.logsumexp(logits, axis=-1)
        nats = log_z - jnp.take_along_axis(logits, tokens[..., None], axis=-1)[..., 0]
        return jnp.where(mask, nats + 1e-4 * log_z**2, 0).sum()

    assert float(objective(params)) == pytest.approx(float(by_hand(params)), rel=1e-5)
    found, wanted = jax.grad(objective)(params), jax.grad(by_hand)(params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found, wanted)
    metrics = loss(params, batch, None, {})
    assert metrics["z_loss"][1] == 13 and metrics["loss"][0] < metrics["objective"][0]
    sgd = make_train_step(loss, lambda hyper, rate: optax.sgd(1.0), lambda update, hyper: jnp.float32(1.0))
    state = new_state(experiment("unused"), Recurrent(11), {"tokens": (1, 4)})
    state = state._replace(params=params, opt_state=optax.sgd(1.0).init(params), hyperparameters={})
    moved = jax.tree.map(lambda old, new: 13 * (old - new), params, jax.jit(sgd)(state, batch)[0].params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), moved, wanted)


def test_an_auxiliary_loss_does_not_take_the_name_of_a_metric():
    model = Recurrent(11)
    tokens = jnp.ones((1, 4), int)
    params = model.init(jax.random.key(1), tokens)["params"]
    batch = {"inputs": {"tokens": tokens}, "labels": tokens, "weights": tokens > 0}
    loss = token_loss(model, extra=lambda logits, labels, mask: {"accuracy": (logits.sum(), mask.sum())})
    with pytest.raises(ValueError, match="auxiliary loss must not be named accuracy"):
        loss(params, batch, None, {})


def test_pairs_in_memory_are_trained_on_and_a_wrong_example_is_named(tmp_path):
    pairs = [{"source": a + b, "target": b + a} for a in "abc" for b in "abc"]
    base = experiment(tmp_path / "run")
    config = dataclasses.replace(
        base.config,
        data=DataConfig("pairs", batch_size=3),
        model=TransformerConfig(num_encoder_layers=1, num_decoder_layers=1, d_model=8, num_heads=2, d_ff=8),
        train=TrainConfig(steps=2, log_every=1, evaluate_every=2, save_every=2),
    )

    def data(config, tokenizers_from):
        return load_examples({"train": pairs, "validation": pairs[:2]}, config.data, tokenizers_from)

    result = train(Experiment("reverse", config, data=data))
    assert result.metrics["validation_loss"] > 0
    for wrong, message in (
        ({"source": "a"}, "example 9 of examples, split train, has keys source; the first one has source, target"),
        ({"source": "a", "target": 3}, "example 9 of examples, split train, must have a str as its target, got int"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            load_examples({"train": [*pairs, wrong]}, config.data)
