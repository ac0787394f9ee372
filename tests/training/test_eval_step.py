"""Evaluation: the same numbers for every batch size, no dropout, no smoothing, and an exact match that is greedy's."""

import math

import jax
import numpy as np
import pytest

from tests.decoding.samples import greedy_transformer
from tests.model.samples import assert_near, compiled
from tests.training.samples import (
    BOS,
    EOS,
    LENGTH,
    VOCAB,
    TableModel,
    hyper_of,
    mean,
    pair_batch,
    random_batch,
    run,
    sentence,
    small_language_model,
    small_parameters,
    small_state,
    small_transformer,
    table_batch,
)
from training.eval_step import evaluate, make_eval_step
from training.loss import token_loss
from training.metrics import perplexity
from training.optimizer import adamw
from training.schedules import constant
from training.step import make_train_step


@pytest.fixture(scope="module")
def model():
    return small_transformer(num_encoder_layers=1, num_decoder_layers=1)


def pairs(count):
    return [(sentence(1 + i % 5, 2 * i), sentence(1 + (3 * i) % 6, 2 * i + 1)) for i in range(count)]


def batches(examples, size):
    """As the pipeline makes them: all of one shape, the last filled with rows that are all PAD."""
    for start in range(0, len(examples), size):
        yield pair_batch(*zip(*examples[start : start + size], strict=True), rows=size)


def test_the_batch_size_changes_nothing(model):
    examples, params = pairs(10), small_parameters(model)
    eval_step = make_eval_step(token_loss(model, exact_match=True))
    means = {size: evaluate(eval_step, params, batches(examples, size)) for size in (1, 3, 4, 10)}
    for size in (1, 3, 4):
        assert means[size] == pytest.approx(means[10], rel=1e-6), size
        assert perplexity(means[size]["loss"]) == pytest.approx(perplexity(means[10]["loss"]), rel=1e-6)
    one_by_one = [eval_step(params, batch)["loss"] for batch in batches(examples, 1)]
    tokens = [len(target) + 1 for _, target in examples]
    assert [int(count) for _, count in one_by_one] == tokens
    by_hand = math.fsum(float(total) for total, _ in one_by_one) / sum(tokens)
    assert means[3]["loss"] == pytest.approx(by_hand, rel=1e-6)
    assert by_hand != pytest.approx(np.mean([mean(pair) for pair in one_by_one]), rel=1e-3)


def test_a_short_document_is_worth_the_same_next_to_a_long_one():
    """Padding is not scored, neither in the loss nor in the number of tokens."""
    model = small_language_model()
    params, eval_step = small_parameters(model), make_eval_step(token_loss(model))

    def documents(*ids, length):
        tokens, labels = np.zeros((2, len(ids), length), np.int32)
        for row, document in enumerate(ids):
            tokens[row, : len(document) + 1], labels[row, : len(document) + 1] = [BOS, *document], [*document, EOS]
        return {"inputs": {"tokens": tokens}, "labels": labels, "loss_mask": labels != 0}

    short, long = sentence(3), sentence(15)
    alone = evaluate(eval_step, params, [documents(short, length=4)])["loss"]
    other = evaluate(eval_step, params, [documents(long, length=16)])["loss"]
    together = documents(short, long, length=16)
    only_short = together | {"loss_mask": together["loss_mask"] & [[True], [False]]}
    assert perplexity(evaluate(eval_step, params, [only_short])["loss"]) == pytest.approx(perplexity(alone), rel=1e-6)
    both = (4 * alone + 16 * other) / 20
    assert evaluate(eval_step, params, [together])["loss"] == pytest.approx(both, rel=1e-6)


def test_neither_dropout_nor_smoothing_is_in_it():
    """Whatever the run trains with: the step has no hyperparameters and no key."""
    model = small_language_model(dropout=0.5)
    hyper = hyper_of(model, label_smoothing=0.3)
    state = small_state(model, adamw, hyper)
    batch = random_batch(4)
    batch |= {"inputs": {"tokens": batch["inputs"]["target"]}}
    logits = compiled(model.apply)({"params": state.params}, batch["inputs"]["tokens"]).astype(np.float64)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    nll = -np.take_along_axis(log_p, batch["labels"][..., None], -1)[..., 0][batch["loss_mask"]]
    found = evaluate(make_eval_step(token_loss(model)), state.params, [batch])
    assert found["loss"] == pytest.approx(nll.mean(), rel=1e-6)


def test_the_sum_is_as_exact_as_float64():
    """Of ten thousand batches: float32 would lose what is small against the sum."""

    def eval_step(params, batch):
        return {"loss": (np.float32(1 + 2**-20), np.int32(1))}

    assert evaluate(eval_step, None, range(10_000))["loss"] == pytest.approx(1 + 2**-20, rel=1e-12)
    assert np.full(10_000, 1 + 2**-20, np.float32).cumsum(dtype=np.float32)[-1] / 10_000 != 1 + 2**-20


def test_batches_overlap_and_none_is_lost():
    """A batch is fetched after the next was dispatched; the last one too, and no batch at all is no number."""
    events = []

    class Later:
        def __init__(self, index):
            self.index = index

        def __array__(self, dtype=None, copy=None):
            events.append(("fetch", self.index))
            return np.asarray(1, np.int32)

    def eval_step(params, index):
        events.append(("dispatch", index))
        return {"loss": (Later(index), np.int32(1))}

    assert evaluate(eval_step, None, iter(range(3))) == {"loss": 1.0}
    order = [("dispatch", 0), ("dispatch", 1), ("fetch", 0), ("dispatch", 2), ("fetch", 1), ("fetch", 2)]
    assert events == order
    assert evaluate(eval_step, None, []) == {}


def test_rows_of_padding_are_no_examples():
    logits = np.float32(np.eye(4)[[[1, 2], [0, 0]]])
    batch = table_batch([[1, 2], [0, 0]], [[True, True], [False, False]])
    eval_step = make_eval_step(token_loss(TableModel(), exact_match=True))
    assert evaluate(eval_step, {"logits": logits}, [batch])["exact_match"] == 1.0


@pytest.mark.slow
def test_exact_match_in_one_forward_pass_is_that_of_greedy_decoding():
    """Of a model that has learned a little: it writes the two tokens of the source backwards, and often fails."""
    model = small_transformer(d_model=32, d_ff=64, num_encoder_layers=1, num_decoder_layers=1)
    rng = np.random.default_rng(0)

    def reversals(count):
        sources = [rng.integers(3, VOCAB, rng.integers(1, 4)) for _ in range(count)]
        return pair_batch(sources, [source[::-1] for source in sources])

    loss = token_loss(model, exact_match=True)
    step = jax.jit(make_train_step(loss, adamw, constant))
    state = small_state(model, adamw, hyper_of(model, peak_lr=5e-3, warmup_steps=10))
    state, _ = run(step, state, [reversals(64) for _ in range(60)])

    batch = reversals(128)
    cut = {key: x[:, None] for key, x in batch.items() if key != "inputs"}
    rows = cut | {"inputs": {key: x[:, None] for key, x in batch["inputs"].items()}}
    forced, counted = compiled(jax.vmap(lambda row: loss(state.params, row, None, {})["exact_match"]))(rows)
    decoded = compiled(greedy_transformer, "model", "max_tokens")(
        model, state.params, batch["inputs"]["source"], max_tokens=LENGTH
    )
    right = (decoded.tokens == batch["labels"]).all(axis=1)
    assert 16 < right.sum() < 112  # or there is nothing to tell apart
    assert (counted == 1).all()
    assert_near(forced, right, 0)
    total, count = make_eval_step(loss)(state.params, batch)["exact_match"]
    assert (int(total), int(count)) == (right.sum(), 128)
