"""Small models, batches and losses whose numbers are known, for the tests of training and decoding."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

from model.config import LanguageModelConfig, TransformerConfig
from model.language_model import LanguageModel
from model.transformer import Transformer
from tests.model.samples import parameters
from training.config import OptimizerConfig, TrainConfig
from training.hyperparameters import hyperparameters
from training.step import init_state

PAD, BOS, EOS = 0, 1, 2
VOCAB = 13
LENGTH = 7


def small_transformer(**changes):
    options = {"d_model": 16, "num_heads": 2, "d_ff": 32, "num_encoder_layers": 2, "num_decoder_layers": 2}
    options |= {"max_length": 16, "dropout": 0.0, "embeddings": "shared"}
    return Transformer(TransformerConfig(**(options | changes)), VOCAB, VOCAB)


def small_language_model(**changes):
    options = {"d_model": 16, "num_heads": 2, "d_ff": 32, "num_layers": 1, "max_length": 16, "dropout": 0.0}
    return LanguageModel(LanguageModelConfig(**(options | changes)), VOCAB)


def sentence(length, seed=0):
    return np.random.default_rng([seed, length]).integers(3, VOCAB, length)


def pair_batch(sources, targets, rows=None, length=LENGTH):
    """Pairs of id sequences as the pipeline makes them, up to `rows` rows, the rest of which is PAD."""
    rows = len(sources) if rows is None else rows
    source, target, labels = (np.zeros((rows, length), np.int32) for _ in range(3))
    for row, (x, y) in enumerate(zip(sources, targets, strict=True)):
        source[row, : len(x) + 1] = [*x, EOS]
        target[row, : len(y) + 1] = [BOS, *y]
        labels[row, : len(y) + 1] = [*y, EOS]
    return {"inputs": {"source": source, "target": target}, "labels": labels, "loss_mask": labels != PAD}


def random_batch(rows, seed=0, lengths=None):
    """Pairs of random sentences; `lengths` are those of the targets, EOS counted."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, LENGTH, rows) if lengths is None else lengths
    sources = [sentence(rng.integers(1, LENGTH - 1), 2 * i + 1000 * seed) for i in range(rows)]
    targets = [sentence(length - 1, 2 * i + 1 + 1000 * seed) for i, length in enumerate(lengths)]
    return pair_batch(sources, targets)


def text_batch(rows, seed=0):
    """The targets of `random_batch` as text."""
    batch = random_batch(rows, seed)
    return batch | {"inputs": {"tokens": batch["inputs"]["target"]}}


def small_parameters(model, seed=0):
    return parameters(model, *(LENGTH for _ in input_names(model)), seed=seed)


def small_state(model, optimizer, hyper, seed=0):
    return _initializer(model, optimizer)(hyper, seed)


@cache
def _initializer(model, optimizer):
    tokens = {name: jnp.zeros((1, LENGTH), jnp.int32) for name in input_names(model)}
    return jax.jit(
        lambda hyper, seed: init_state(lambda key: model.init(key, **tokens)["params"], optimizer, hyper, seed)
    )


def input_names(model):
    return ("source", "target") if isinstance(model, Transformer) else ("tokens",)


def hyper_of(model, *, steps=100, label_smoothing=0.0, **optimizer):
    train = TrainConfig(steps=steps, label_smoothing=label_smoothing)
    return hyperparameters(model.config, OptimizerConfig(**optimizer), train)


def sgd(hyper, learning_rate):
    """Plain gradient descent: what the parameters lose is the gradient."""
    return optax.scale(-learning_rate)


def constant_rate(update, hyper):
    return hyper["peak_lr"]


def run(step, state, batches):
    """The state after `batches`, and the metrics of each step."""
    metrics = []
    for batch in batches:
        state, latest = step(state, batch)
        metrics.append(jax.device_get(latest))
    return state, metrics


def mean(pair):
    return float(pair[0]) / int(pair[1])


class TableModel:
    """A model whose logits are its parameters, [rows, T, V], so that dloss/dlogits is the gradient of the training."""

    def apply(self, variables, x, *, method, **options):
        return getattr(self, method)(variables["params"], x, **options)

    def features(self, params, x, **options):
        return params["logits"][x]

    def logits(self, params, features):
        return features


def table_batch(labels, weights=None):
    labels = np.asarray(labels, np.int32)
    weights = np.ones(labels.shape, bool) if weights is None else np.asarray(weights, bool)
    return {"inputs": {"x": np.arange(len(labels))}, "labels": labels, "loss_mask": weights}


class LinearModel:
    """Features [rows, T, D] that are parameters, and logits that are a matrix times them: the last map of a model."""

    def apply(self, variables, x, *, method, **options):
        return getattr(self, method)(variables["params"], x, **options)

    def features(self, params, x, **options):
        return params["features"][x]

    def logits(self, params, features):
        return features @ params["kernel"]


def known_batch():
    """Parameters and a batch of two rows for `TableModel`: 10 tokens with loss 2, and 100 tokens with loss 4."""
    logits, weights = np.zeros((2, 100, 2), np.float32), np.zeros((2, 100), bool)
    for row, (loss, tokens) in enumerate([(2.0, 10), (4.0, 100)]):
        logits[row, :, 1] = np.log(np.expm1(loss))  # log(1 + e^z) = loss, the label being 0
        weights[row, :tokens] = True
    return {"logits": jnp.asarray(logits)}, table_batch(np.zeros((2, 100)), weights)


def table_state(params, optimizer=sgd, **hyper):
    hyper = {name: jnp.float32(value) for name, value in ({"peak_lr": 1.0} | hyper).items()}
    return jax.jit(partial(init_state, lambda key: jax.tree.map(jnp.asarray, params), optimizer, hyper, 0))()


def compilations(caplog, function="train_step"):
    """How often XLA has compiled that function under `jax.log_compiles()`."""
    wanted = f"Finished XLA compilation of jit({function})"
    return sum(record.getMessage().startswith(wanted) for record in caplog.records)
