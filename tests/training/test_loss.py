"""Cross-entropy: the formula, its gradient p − p̂, what padding may hold, and the same numbers in pieces."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from model.config import LanguageModelConfig
from model.language_model import LanguageModel
from tests.model.jaxprs import traced
from tests.model.samples import assert_near, assert_same_bits
from tests.training.samples import TableModel, mean, random_batch, small_transformer, table_batch
from training.loss import cross_entropy, token_loss, token_metrics

LOGITS = np.float32([[2, 1, 0, -3]])


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
    assert_near(cross_entropy(logits, labels, weights, epsilon), wanted, 1e-6)
    assert cross_entropy(logits.astype(jnp.bfloat16), labels, weights, epsilon).dtype == jnp.float32
    with jax.enable_x64(True):
        assert_near(cross_entropy(np.float64(logits), labels, weights, epsilon), wanted, 1e-14)


def test_large_logits_do_not_overflow():
    logits = np.float32([[1e4, -1e4, 0.0]])
    assert_near(cross_entropy(logits, np.int32([1]), np.array([True])), [2e4], 1e-6)


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_gradient_is_p_minus_target_and_the_rest_is_kl(epsilon):
    """Of the function itself, and of the loss that a training step differentiates."""
    logits, labels, weights = sample(4, 6)
    p, target = np.exp(log_softmax(logits)), smoothed(labels, logits.shape[-1], epsilon)
    gradient = np.where(weights[..., None], p - target, 0)
    assert_near(jax.grad(lambda z: cross_entropy(z, labels, weights, epsilon).sum())(logits), gradient, 1e-6)

    hyper = {"label_smoothing": jnp.float32(epsilon)} if epsilon else {}
    batch, loss = table_batch(labels, weights), token_loss(TableModel())
    assert_near(jax.grad(lambda z: loss({"logits": z}, batch, None, hyper)["loss"][0])(logits), gradient, 1e-6)

    kl = (target * (np.log(np.where(target > 0, target, 1)) - log_softmax(logits))).sum(-1)
    wanted = (kl + entropy(target))[weights].sum()
    total, count = loss({"logits": logits}, batch, None, hyper)["loss"]
    assert total == pytest.approx(wanted, rel=1e-6) and count == weights.sum()
    with jax.enable_x64(True):
        assert cross_entropy(np.float64(logits), labels, weights, epsilon).sum() == pytest.approx(wanted, rel=1e-14)


def test_which_label_smoothing():
    """ε/V of it goes to every entry, as in optax; other codebases take ε/(V−1), or ε/(V−2) without target and PAD."""
    labels, weights, log_p = np.int32([0]), np.array([True]), log_softmax(LOGITS[0])
    assert cross_entropy(LOGITS, labels, weights)[0] == pytest.approx(0.41208, abs=5e-6)
    ours = cross_entropy(LOGITS, labels, weights, 0.1)[0]
    assert ours == pytest.approx(0.61208, abs=5e-6)
    targets = optax.smooth_labels(jnp.eye(4)[labels], 0.1)
    assert ours == pytest.approx(optax.softmax_cross_entropy(LOGITS, targets)[0], rel=1e-6)
    assert -(0.9 * log_p[0] + 0.1 / 3 * log_p[1:].sum()) == pytest.approx(0.67874, abs=5e-6)
    assert -(0.9 * log_p[0] + 0.1 / 2 * log_p[1:3].sum()) == pytest.approx(0.56208, abs=5e-6)


@pytest.mark.parametrize("smoothing", [{}, {"label_smoothing": 0.1}])
def test_padding_changes_nothing(smoothing):
    logits, labels, _ = sample(2, 5)
    padded = np.concatenate([logits, sample(2, 10, seed=1)[0]], axis=1)
    weights = np.arange(15) < 5
    loss = token_loss(TableModel(), exact_match=True)
    alone = loss({"logits": logits}, table_batch(labels), None, smoothing)
    batch = table_batch(np.pad(labels, [(0, 0), (0, 10)]), np.stack([weights] * 2))
    with_padding = loss({"logits": padded}, batch, None, smoothing)
    assert_near(with_padding, alone, 1e-6)
    assert_same_bits({k: v[1] for k, v in with_padding.items()}, {k: v[1] for k, v in alone.items()})


@pytest.mark.parametrize("ignored", [-100, -1, 4, 2**31 - 1])
def test_ignored_labels_may_be_anything(ignored):
    logits, labels, weights = np.repeat(LOGITS, 2, axis=0), np.int32([ignored, 0]), np.array([False, True])
    value, gradient = jax.value_and_grad(lambda z: cross_entropy(z, labels, weights, 0.1).sum())(logits)
    assert value == pytest.approx(0.61208, abs=5e-6)
    assert not gradient[0].any() and np.isfinite(gradient).all()


@pytest.mark.parametrize("label", [-100, -1, 4, 2**31 - 1])
def test_a_real_label_outside_of_the_vocabulary_is_nan_and_no_neighbour(label):
    assert np.isnan(cross_entropy(LOGITS, np.int32([label]), np.array([True]))).all()
    assert np.isnan(cross_entropy(LOGITS, np.int32([label]), np.array([True]), 0.1)).all()


@pytest.mark.parametrize("garbage", [np.nan, np.inf, -np.inf])
def test_ignored_logits_may_be_anything(garbage):
    logits, labels, weights = np.repeat(LOGITS, 3, axis=0), np.int32([0, 0, 0]), np.array([True, False, False])
    logits[1], logits[2, 1] = garbage, garbage
    value, gradient = jax.value_and_grad(lambda z: cross_entropy(z, labels, weights, 0.1).sum())(logits)
    assert value == pytest.approx(0.61208, abs=5e-6)
    assert (np.asarray(gradient[1:]) == 0).all() and np.isfinite(gradient).all()


def test_nothing_to_count_is_zero():
    logits, labels, _ = sample(2, 5)
    batch = table_batch(labels, np.zeros((2, 5)))
    loss = token_loss(TableModel(), exact_match=True)
    (metrics, gradient) = jax.value_and_grad(lambda z: loss({"logits": z}, batch, None, {})["loss"][0])(logits)
    assert metrics == 0 and not gradient.any()
    assert all(total == 0 and count == 0 for total, count in loss({"logits": logits}, batch, None, {}).values())


def test_accuracy_and_exact_match_are_counted():
    labels = np.int32([[3, 1, 2], [2, 2, 0], [1, 0, 0], [0, 0, 0]])
    weights = np.array([[1, 1, 1], [1, 1, 0], [1, 0, 0], [0, 0, 0]], bool)
    predicted = np.array([[3, 1, 2], [2, 1, 0], [1, 3, 3], [0, 0, 0]])  # a wrong token at padding does not matter
    metrics = token_loss(TableModel(), exact_match=True)(
        {"logits": np.float32(np.eye(4)[predicted])}, table_batch(labels, weights), None, {}
    )
    assert {name: tuple(map(int, metrics[name])) for name in ("accuracy", "exact_match")} == {
        "accuracy": (5, 6),
        "exact_match": (2, 3),
    }
    assert all(count.dtype == jnp.int32 for _, count in metrics.values())
    assert "exact_match" not in token_loss(TableModel())(
        {"logits": np.float32(np.eye(4)[predicted])}, table_batch(labels, weights), None, {}
    )


def test_token_metrics_do_not_count():
    logits, labels, weights = sample(3, 4)
    total, right = token_metrics(logits, labels, weights)
    assert total == pytest.approx(reference(logits, labels, weights, 0).sum(), rel=1e-6)
    assert_same_bits(right, logits.argmax(-1) == labels)


def language_model(vocab):
    config = LanguageModelConfig(d_model=8, num_heads=2, d_ff=16, num_layers=1, max_length=64, dropout=0.0)
    return LanguageModel(config, vocab)


def text_batch(rows, length, vocab):
    rng = np.random.default_rng(0)
    tokens, labels = rng.integers(3, vocab, (2, rows, length)).astype(np.int32)
    weights = np.arange(length) < rng.integers(1, length + 1, (rows, 1))
    return {"inputs": {"tokens": tokens}, "labels": labels, "weights": weights}


def differentiated(model, chunk, batch, exact_match=True):
    loss = token_loss(model, chunk, exact_match)
    hyper = {"label_smoothing": jnp.float32(0.1)}

    def value(params):
        metrics = loss(params, batch, None, hyper)
        return metrics["loss"][0], metrics

    return jax.value_and_grad(value, has_aux=True)


def test_chunks_give_the_same_numbers():
    model, batch = language_model(50), text_batch(3, 7, 50)
    params = jax.jit(model.init)(jax.random.key(0), batch["inputs"]["tokens"])["params"]
    (total, metrics), gradient = jax.jit(differentiated(model, 0, batch))(params)
    for chunk in (1, 4, 21, 50):  # 4 does not divide the 21 positions, and 50 is more than there are
        (chunked_total, chunked), chunked_gradient = jax.jit(differentiated(model, chunk, batch))(params)
        assert_near(chunked_total / total, 1.0, 1e-6)
        assert_near(chunked["loss"], metrics["loss"], 1e-5)
        assert_same_bits([chunked[k] for k in ("accuracy", "exact_match")], [metrics["accuracy"], metrics["exact_match"]])
        assert_near(chunked_gradient, gradient, 1e-5)


def test_chunks_never_hold_the_logits_of_all_positions():
    vocab, positions = 400, 3 * 8
    model, batch = language_model(vocab), text_batch(3, 8, vocab)
    params = jax.eval_shape(model.init, jax.random.key(0), batch["inputs"]["tokens"])["params"]

    def largest(chunk):
        equations = traced(differentiated(model, chunk, batch), params)
        return max(out.aval.size for equation in equations for out in equation.outvars)

    assert largest(chunk=0) == positions * vocab
    assert largest(chunk=4) < positions * vocab / 2


def test_chunks_save_memory():
    vocab = 8192
    model, batch = language_model(vocab), text_batch(8, 64, vocab)
    params = jax.eval_shape(model.init, jax.random.key(0), batch["inputs"]["tokens"])["params"]

    def temporary(chunk):
        return jax.jit(differentiated(model, chunk, batch)).lower(params).compile().memory_analysis().temp_size_in_bytes

    assert temporary(chunk=0) > 4 * 512 * vocab  # the logits
    assert temporary(chunk=64) < temporary(chunk=0) / 4


def test_dropout_and_smoothing_are_for_training_only():
    """A key turns dropout on, at the rates of the hyperparameters; without rates it changes nothing."""
    model, batch = small_transformer(), random_batch(4)
    params = jax.jit(model.init)(jax.random.key(0), **batch["inputs"])["params"]
    loss = jax.jit(token_loss(model))
    plain = loss(params, batch, None, {"dropout": 0.5, "attention_dropout": 0.5})
    assert_same_bits(loss(params, batch, jax.random.key(1), {}), plain)
    for rates in ({"dropout": 0.5}, {"attention_dropout": 0.5}):
        one, other = (loss(params, batch, jax.random.key(seed), rates)["loss"] for seed in (1, 2))
        assert len({mean(plain["loss"]), mean(one), mean(other)}) == 3
