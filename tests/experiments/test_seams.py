"""What a researcher changes from one new file: data, an auxiliary loss, optimizer, schedule, a model of one's own."""

import dataclasses
import functools
import json

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from data.config import DataConfig
from data.loading import load_examples
from data.spec import spec_of
from data.tokenizers.characters import CharacterTokenizer
from decoding import DecodeInputs, beam_search, greedy, log_likelihood, prefill_language_model, prefill_transformer
from experiments.experiment import STANDARD_METRICS, Config, Experiment
from inference.generation_config import DecodingOptions
from inference.text_generation import continuation
from inference.trained_model import TrainedModel
from inference.translator import output_length
from model.config import LanguageModelConfig, TransformerConfig
from model.language_model import LanguageModel
from tests.model.samples import compiled
from train import train
from training.config import OptimizerConfig, TrainConfig
from training.loss import token_loss
from training.step import make_train_step
from workdir.train_state import new_state


class Recurrent(nn.Module):
    """A GRU language model, a `TrainableModel`."""

    vocab_size: int

    def setup(self):
        self.embedding = nn.Embed(self.vocab_size, 16)
        self.cell = nn.GRUCell(16)
        self.recurrence = nn.RNN(self.cell)
        self.output = nn.Dense(self.vocab_size)

    def __call__(self, tokens):
        return self.logits(self.features(tokens))

    def features(self, tokens, dropout_rate=None, attention_dropout_rate=None):
        return self.recurrence(self.embedding(tokens))

    def logits(self, features):
        return self.output(features)


class DecodableRecurrent(Recurrent):
    """The same with what decoding needs, a `DecodableModel`: its cache is the state of the GRU."""

    max_length: int = 1000

    def advance(self, state, newest):
        state, features = self.cell(state, self.embedding(newest))
        return state, self.output(features)

    def prefill(self, params, prompt, *, lengths=None, max_tokens):
        rows, width = prompt.shape
        lengths = jnp.full(rows, width) if lengths is None else lengths
        step = functools.partial(self.apply, {"params": params}, method="advance")

        def read(state, column):
            place, tokens = column
            return jnp.where((place < lengths - 1)[:, None], step(state, tokens)[0], state), None

        state, _ = jax.lax.scan(read, jnp.zeros((rows, 16)), (jnp.arange(width), prompt.T))
        return DecodeInputs(step, state, jnp.take_along_axis(prompt, lengths[:, None] - 1, axis=1)[:, 0])


class NoLogits(nn.Module):
    def features(self, tokens):
        return tokens


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


def test_a_model_of_ones_own_is_decoded():
    """Greedy with ragged prompts equals the most probable token, one at a time, by whole passes; so do scores."""
    model = DecodableRecurrent(11)
    prompt = jax.random.randint(jax.random.key(0), (3, 5), 3, 11)
    lengths = jnp.array([5, 1, 3])
    params = model.init(jax.random.key(1), prompt)["params"]
    ends = {"max_tokens": 6, "end_id": 2, "pad_id": 0, "suppress_ids": (0,)}
    start = prefill_language_model(model, params, prompt, lengths, max_tokens=6)
    found, best = greedy(*start, **ends), beam_search(*start, beam_size=1, **ends)
    np.testing.assert_array_equal(best.tokens[:, 0], found.tokens)
    whole = compiled(lambda tokens: model.apply({"params": params}, tokens))
    for row, length in enumerate(lengths):
        tokens, length = np.zeros((1, 11), np.int32), int(length)
        tokens[0, :length] = prompt[row, :length]
        for token in found.tokens[row][found.tokens[row] != 0].tolist():
            assert token == int(whole(tokens)[0, length - 1, 1:].argmax()) + 1
            tokens[0, length], length = token, length + 1
    context = jnp.where(jnp.arange(5)[None] < lengths[:, None], prompt, 0)
    assert log_likelihood(model, params, context, found.tokens, suppress_ids=(0,)).is_greedy.all()


def test_a_model_of_ones_own_writes_text(tmp_path):
    """As the command does it: from the run's directory, in pieces that are those of one call."""
    model = DecodableRecurrent
    base = dataclasses.replace(experiment(tmp_path), model=lambda config, vocab_sizes: model(vocab_sizes["text"]))
    data = counting(base.config, None)
    params = model(data.vocab_sizes["text"]).init(jax.random.key(0), jnp.ones((1, 4), int))["params"]
    trained = TrainedModel(base.model(base.config, data.vocab_sizes), params, data.tokenizers, spec_of(data))
    options = DecodingOptions(max_tokens=8)
    text = "".join(continuation(trained, "1 2 3", options))
    prompt = jnp.array([[2, *data.tokenizers["text"].encode("1 2 3").tolist()]])
    start = prefill_language_model(trained.model, params, prompt, max_tokens=8)
    whole = greedy(*start, max_tokens=8, end_id=2, pad_id=0, suppress_ids=options.suppress_ids).tokens[0]
    assert text == data.tokenizers["text"].decode([token for token in whole.tolist() if token > 2])


def test_a_model_that_lacks_something_is_refused_in_one_line():
    with pytest.raises(ValueError, match=r"^NoLogits cannot be trained by token_loss .*: it has no method logits$"):
        token_loss(NoLogits())
    with pytest.raises(ValueError, match=r"^NoDropout cannot be trained .*: its features take no dropout_rate$"):
        token_loss(type("NoDropout", (Recurrent,), {"features": lambda self, tokens: tokens})(7))
    with pytest.raises(ValueError, match=r"^Recurrent cannot be decoded .*: it has no max_length$"):
        prefill_language_model(Recurrent(7), {}, jnp.ones((1, 2), int), max_tokens=3)
    unbounded = type("Unbounded", (Recurrent,), {"max_length": 9})(7)
    for call in (
        lambda: prefill_language_model(unbounded, {}, jnp.ones((1, 2), int), max_tokens=3),
        lambda: prefill_transformer(unbounded, {}, jnp.ones((1, 2), int), jnp.ones((1, 1), int), max_tokens=3),
        lambda: output_length(unbounded, None, DecodingOptions()),
        lambda: next(continuation(TrainedModel(unbounded, {}, {"text": CharacterTokenizer("ab")}, None), "a", None)),
    ):
        with pytest.raises(ValueError, match=r"^Unbounded cannot be decoded .*: it has no prefill$"):
            call()


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
    batch = {"inputs": {"tokens": tokens}, "labels": tokens, "loss_mask": mask}
    loss = token_loss(model, chunk, extra=z_loss)

    def objective(params):
        return loss(params, batch, None, {})["objective"][0]

    def by_hand(params):
        logits = model.apply({"params": params}, tokens)
        log_z = jax.nn.logsumexp(logits, axis=-1)
        nats = log_z - jnp.take_along_axis(logits, tokens[..., None], axis=-1)[..., 0]
        return jnp.where(mask, nats + 1e-4 * log_z**2, 0).sum()

    assert float(compiled(objective)(params)) == pytest.approx(float(compiled(by_hand)(params)), rel=1e-5)
    found, wanted = compiled(jax.grad(objective))(params), compiled(jax.grad(by_hand))(params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found, wanted)
    metrics = compiled(lambda params: loss(params, batch, None, {}))(params)
    assert metrics["z_loss"][1] == 13 and metrics["loss"][0] < metrics["objective"][0]
    sgd = make_train_step(loss, lambda hyper, rate: optax.sgd(1.0), lambda update, hyper: jnp.float32(1.0))
    state = new_state(experiment("unused"), Recurrent(11), {"tokens": (1, 4)})
    state = state._replace(params=params, opt_state=optax.sgd(1.0).init(params), hyperparameters={})
    moved = jax.tree.map(lambda old, new: 13 * (old - new), params, compiled(sgd)(state, batch)[0].params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), moved, wanted)


def test_an_auxiliary_loss_does_not_take_the_name_of_a_metric():
    model = Recurrent(11)
    tokens = jnp.ones((1, 4), int)
    params = model.init(jax.random.key(1), tokens)["params"]
    batch = {"inputs": {"tokens": tokens}, "labels": tokens, "loss_mask": tokens > 0}
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
