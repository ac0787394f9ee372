"""Cross-entropy: the formula, its gradient p − p̂, what padding may hold, and the same numbers in pieces."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from model.config import LanguageModelConfig
from model.language_model import LanguageModel
from tests.model.jaxprs import traced
from tests.model.samples import assert_near, assert_same_bits, compiled, parameters_like
from tests.training.samples import (
    LinearModel,
    TableModel,
    mean,
    small_language_model,
    small_parameters,
    table_batch,
    text_batch,
)
from training.loss import cross_entropy, token_loss, token_metrics

LOGITS = np.float32([[2, 1, 0, -3]])
LABELS, REAL = np.int32([0]), np.array([True])

per_token = compiled(cross_entropy)


@compiled
def differentiated(logits, labels, weights, smoothing=None):
    """The summed cross-entropy and its gradient by the logits."""
    return jax.value_and_grad(lambda z: cross_entropy(z, labels, weights, smoothing).sum())(logits)


@compiled
def table_loss(logits, batch, hyper):
    """The metrics of the training loss for a model with these logits, and the gradient of the loss by them."""
    loss = token_loss(TableModel(), exact_match=True)

    def summed(logits):
        metrics = loss({"logits": logits}, batch, None, hyper)
        return metrics["loss"][0], metrics

    gradient, metrics = jax.grad(summed, has_aux=True)(logits)
    return metrics, gradient


def log_softmax(z):
    z = np.asarray(z, np.float64)
    z = z - z.max(-1, keepdims=True)
    return z - np.log(np.exp(z).sum(-1, keepdims=True))


def smoothed(labels, size, epsilon):
    return (1 - epsilon) * np.eye(size)[labels] + epsilon / size


def reference(z, labels, weights, epsilon):
    return -(smoothed(labels, z.shape[-1], epsilon) * log_softmax(z)).sum(-1) * weights


def entropy(p):
    return -(p * np.log(np.where(p > 0, p, 1))).sum(-1)


def sample(*shape, size=11, seed=0):
    rng = np.random.default_rng(seed)
    logits = (4 * rng.normal(size=(*shape, size))).astype(np.float32)
    return logits, rng.integers(0, size, shape).astype(np.int32), rng.random(shape) < 0.7


@pytest.mark.parametrize("epsilon", [None, 0.0, 0.1, 0.5])
def test_cross_entropy_is_the_formula(epsilon):
    logits, labels, weights = sample(3, 5)
    wanted = reference(logits, labels, weights, epsilon or 0.0)
    assert_near(per_token(logits, labels, weights, epsilon), wanted, 1e-6)
    with jax.enable_x64(True):
        assert_near(per_token(np.float64(logits), labels, weights, epsilon), wanted, 1e-14)


def test_narrow_logits_have_a_float32_loss():
    logits, labels, weights = sample(3, 5)
    narrow = logits.astype(jnp.bfloat16)
    loss = per_token(narrow, labels, weights, 0.1)
    assert loss.dtype == np.float32
    assert_near(loss, reference(narrow.astype(np.float32), labels, weights, 0.1), 1e-6)


def test_large_logits_do_not_overflow():
    assert per_token(np.float32([[1e4, -1e4, 0.0]]), np.int32([1]), REAL, None) == pytest.approx(2e4)


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_gradient_is_p_minus_target_and_the_rest_is_kl(epsilon):
    """Of the function itself, and of the loss that a training step differentiates."""
    logits, labels, weights = sample(4, 6)
    p, target = np.exp(log_softmax(logits)), smoothed(labels, logits.shape[-1], epsilon)
    kl = (target * (np.log(np.where(target > 0, target, 1)) - log_softmax(logits))).sum(-1)
    total = (kl + entropy(target))[weights].sum()
    gradient = np.where(weights[..., None], p - target, 0)

    value, actual = differentiated(logits, labels, weights, epsilon)
    assert value == pytest.approx(total, rel=1e-6)
    assert_near(actual, gradient, 1e-6)

    hyper = {"label_smoothing": np.float32(epsilon)} if epsilon else {}
    metrics, actual = table_loss(logits, table_batch(labels, weights), hyper)
    assert metrics["loss"] == (pytest.approx(total, rel=1e-6), weights.sum())
    assert_near(actual, gradient, 1e-6)

    with jax.enable_x64(True):
        value, actual = differentiated(np.float64(logits), labels, weights, epsilon)
        assert value == pytest.approx(total, rel=1e-13)
        assert_near(actual, gradient, 1e-14)


@pytest.mark.parametrize("smoothing", [None, 0.0, np.float32(0), jnp.float32(0)])
def test_a_token_of_probability_0_counts_nothing_without_smoothing(smoothing):
    logits = np.float32([[2, 1, 0, -np.inf]])
    value, gradient = differentiated(logits, LABELS, REAL, smoothing)
    assert value == pytest.approx(-log_softmax(LOGITS[0, :3])[0], rel=1e-6)
    assert_near(gradient, np.append(np.exp(log_softmax(LOGITS[0, :3])), 0)[None] - np.eye(4)[:1], 1e-6)
    metrics, _ = table_loss(
        logits[None], table_batch(LABELS[None]), {} if smoothing is None else {"label_smoothing": smoothing}
    )
    assert metrics["loss"] == (value, 1)


def test_a_token_of_probability_0_that_the_target_wants_is_infinitely_wrong():
    logits = np.float32([[2, 1, 0, -np.inf]])
    for label, smoothing in ((3, None), (3, 0.0), (0, 0.1), (3, 0.1)):
        assert per_token(logits, np.int32([label]), REAL, smoothing) == np.inf


def test_smoothings_in_one_program_equal_each_alone():
    """0 among them, under `vmap`; also differentiated by the smoothing."""
    logits = np.float32([[2, 1, 0, -np.inf]])
    summed = jax.value_and_grad(lambda epsilon: cross_entropy(logits, LABELS, REAL, epsilon).sum())
    values, by_smoothing = jax.vmap(summed)(jnp.float32([0.0, 0.1]))
    assert values[0] == pytest.approx(-log_softmax(LOGITS[0, :3])[0], rel=1e-6) and values[1] == np.inf
    assert np.isfinite(by_smoothing[0])


def test_which_label_smoothing():
    """ε/V of it goes to every entry, as in optax; other codebases take ε/(V−1), or ε/(V−2) without target and PAD."""
    log_p = log_softmax(LOGITS[0])
    assert per_token(LOGITS, LABELS, REAL, None) == pytest.approx(0.41208, abs=5e-6)
    ours = per_token(LOGITS, LABELS, REAL, 0.1)
    assert ours == pytest.approx(0.61208, abs=5e-6)
    optaxs = compiled(lambda z: optax.softmax_cross_entropy(z, optax.smooth_labels(jax.nn.one_hot(LABELS, 4), 0.1)))
    assert ours == pytest.approx(optaxs(LOGITS), rel=1e-6)
    assert -(0.9 * log_p[0] + 0.1 / 3 * log_p[1:].sum()) == pytest.approx(0.67874, abs=5e-6)
    assert -(0.9 * log_p[0] + 0.1 / 2 * log_p[1:3].sum()) == pytest.approx(0.56208, abs=5e-6)


@pytest.mark.parametrize("hyper", [{}, {"label_smoothing": np.float32(0.1)}], ids=["plain", "smoothed"])
def test_padding_changes_nothing(hyper):
    logits, labels, _ = sample(2, 5)
    padded = np.concatenate([logits, sample(2, 10, seed=1)[0]], axis=1)
    weights = np.stack([np.arange(15) < 5] * 2)
    alone, gradient = table_loss(logits, table_batch(labels), hyper)
    with_padding, padded_gradient = table_loss(padded, table_batch(np.pad(labels, [(0, 0), (0, 10)]), weights), hyper)
    assert_near(with_padding, alone, 1e-6)
    assert_same_bits(counts(with_padding), counts(alone))
    assert_same_bits(padded_gradient, np.pad(gradient, [(0, 0), (0, 10), (0, 0)]))


@pytest.mark.parametrize("ignored", [-100, -1, 4, 2**31 - 1])
def test_ignored_labels_may_be_anything(ignored):
    labels, weights = np.int32([ignored, 0]), np.array([False, True])
    value, gradient = differentiated(np.repeat(LOGITS, 2, axis=0), labels, weights, 0.1)
    assert value == pytest.approx(0.61208, abs=5e-6)
    assert (gradient[0] == 0).all() and np.isfinite(gradient).all()


@pytest.mark.parametrize("label", [-100, -1, 4, 2**31 - 1])
def test_a_real_label_outside_of_the_vocabulary_is_nan_and_no_neighbour(label):
    assert np.isnan(per_token(LOGITS, np.int32([label]), REAL, None))
    assert np.isnan(per_token(LOGITS, np.int32([label]), REAL, 0.1))


@pytest.mark.parametrize("garbage", [np.nan, np.inf, -np.inf])
def test_ignored_logits_may_be_anything(garbage):
    logits = np.repeat(LOGITS, 3, axis=0)
    logits[1], logits[2, 1] = garbage, garbage
    value, gradient = differentiated(logits, np.int32([0, 0, 0]), np.array([True, False, False]), 0.1)
    assert value == pytest.approx(0.61208, abs=5e-6)
    assert (gradient[1:] == 0).all() and np.isfinite(gradient).all()


def test_nothing_to_count_is_zero():
    logits, labels, _ = sample(2, 5)
    metrics, gradient = table_loss(logits, table_batch(labels, np.zeros((2, 5))), {})
    assert metrics == {"loss": (0, 0), "accuracy": (0, 0), "exact_match": (0, 0)}
    assert not gradient.any()


def test_accuracy_and_exact_match_are_counted():
    labels = np.int32([[3, 1, 2], [2, 2, 0], [1, 0, 0], [0, 0, 0]])
    weights = np.array([[1, 1, 1], [1, 1, 0], [1, 0, 0], [0, 0, 0]], bool)
    predicted = np.array([[3, 1, 2], [2, 1, 0], [1, 3, 3], [0, 0, 0]])  # a wrong token at padding does not matter
    metrics, _ = table_loss(np.float32(np.eye(4)[predicted]), table_batch(labels, weights), {})
    assert metrics["accuracy"] == (5, 6) and metrics["exact_match"] == (2, 3)
    assert {count.dtype for count in counts(metrics).values()} == {np.dtype(np.int32)}


def test_the_pieces_that_other_losses_are_made_of():
    """`token_metrics` judges every position and counts none."""
    logits, labels, weights = sample(3, 4)
    total, right = compiled(token_metrics)(logits, labels, weights)
    assert total == pytest.approx(reference(logits, labels, weights, 0).sum(), rel=1e-6)
    assert_same_bits(right, logits.argmax(-1) == labels)


def counts(metrics):
    return {name: count for name, (_, count) in metrics.items()}


def language_model(vocab):
    config = LanguageModelConfig(d_model=8, num_heads=2, d_ff=16, num_layers=1, max_length=64, dropout=0.0)
    return LanguageModel(config, vocab)


def chunk_batch(rows, length, vocab):
    rng = np.random.default_rng(0)
    tokens, labels = rng.integers(3, vocab, (2, rows, length)).astype(np.int32)
    weights = np.arange(length) < rng.integers(1, length + 1, (rows, 1))
    return {"inputs": {"tokens": tokens}, "labels": labels, "loss_mask": weights}


def in_chunks(model, chunk):
    """(params, batch) -> metrics and gradient of the loss in chunks."""
    loss, hyper = token_loss(model, chunk, exact_match=True), {"label_smoothing": 0.1}

    def summed(params, batch):
        metrics = loss(params, batch, None, hyper)
        return metrics["loss"][0], metrics

    return jax.value_and_grad(summed, has_aux=True)


def shapes(model, batch):
    return jax.eval_shape(model.init, jax.random.key(0), batch["inputs"]["tokens"])["params"]


def test_chunks_give_the_same_numbers():
    model, batch = language_model(50), chunk_batch(3, 7, 50)
    params = parameters_like(shapes(model, batch))
    (total, metrics), gradient = compiled(in_chunks(model, 0))(params, batch)
    exact = ("accuracy", "exact_match")
    for chunk in (4, 50):  # 4 does not divide the 21 positions, and 50 is more than there are
        (chunked_total, chunked), chunked_gradient = compiled(in_chunks(model, chunk))(params, batch)
        assert chunked_total == pytest.approx(total, rel=1e-5)
        assert chunked["loss"][1] == batch["loss_mask"].sum()
        assert [chunked[name] for name in exact] == [metrics[name] for name in exact]
        assert_near(chunked_gradient, gradient, 1e-5)


def test_chunks_never_hold_the_logits_of_all_positions():
    vocab, positions = 400, 3 * 8
    model, batch = language_model(vocab), chunk_batch(3, 8, vocab)

    def largest(chunk):
        equations = traced(in_chunks(model, chunk), shapes(model, batch), batch)
        return max(out.aval.size for equation in equations for out in equation.outvars)

    assert largest(chunk=0) == positions * vocab
    assert largest(chunk=4) < positions * vocab / 2


def test_chunks_save_memory():
    rows, length, width, vocab = 8, 64, 16, 8192
    batch = table_batch(np.zeros((rows, length)))
    sizes = {"features": (rows, length, width), "kernel": (width, vocab)}
    params = {name: jax.ShapeDtypeStruct(size, jnp.float32) for name, size in sizes.items()}

    def temporary(chunk):
        lowered = jax.jit(in_chunks(LinearModel(), chunk)).lower(params, batch)
        return lowered.compile().memory_analysis().temp_size_in_bytes

    assert temporary(chunk=0) > 4 * rows * length * vocab  # the logits in float32
    assert temporary(chunk=64) < temporary(chunk=0) / 4


def test_dropout_is_for_training_only():
    """A key turns dropout on, at the rates of the hyperparameters; without rates it changes nothing."""
    model, batch = small_language_model(), text_batch(4)
    params = small_parameters(model)
    loss = compiled(token_loss(model))
    plain = loss(params, batch, None, {"dropout": 0.5, "attention_dropout": 0.5})
    assert_same_bits(loss(params, batch, jax.random.key(1), {}), plain)
    for rates in ({"dropout": 0.5}, {"attention_dropout": 0.5}):
        one, other = (loss(params, batch, jax.random.key(seed), rates)["loss"] for seed in (1, 2))
        assert len({mean(plain["loss"]), mean(one), mean(other)}) == 3
