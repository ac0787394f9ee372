"""One update: divided once, whatever the pieces; dropout keys of its own; a pure function of state and batch."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from model.matmul import matmul
from tests.model.samples import assert_near, assert_same_bits
from tests.training.samples import (
    TableModel,
    compilations,
    constant_rate,
    hyper_of,
    known_batch,
    mean,
    random_batch,
    run,
    sgd,
    small_language_model,
    small_state,
    small_transformer,
    table_batch,
    table_state,
    text_batch,
)
from training.checkpoint import CheckpointManager
from training.ema import averaged
from training.loss import token_loss
from training.metrics import MetricAccumulator
from training.optimizer import adamw
from training.schedules import SCHEDULES, cosine, noam
from training.step import make_train_step

ROWS = 8


def stepper(loss, optimizer=sgd, schedule=constant_rate, grad_accumulation_steps=1):
    return jax.jit(make_train_step(loss, optimizer, schedule, grad_accumulation_steps))


@pytest.fixture(scope="module")
def model():
    return small_language_model(dropout=0.3)


@pytest.fixture(scope="module")
def step(model):
    return stepper(token_loss(model), adamw)


# Sums and counts


@pytest.mark.parametrize("grad_accumulation_steps", [1, 2])
def test_microbatches_of_10_and_100_tokens(grad_accumulation_steps):
    """Losses 2 and 4 make 420 / 110, and not the mean of the means, 3.0; the gradient likewise."""
    params, batch = known_batch()
    state = table_state(params)
    new, metrics = stepper(token_loss(TableModel()), grad_accumulation_steps=grad_accumulation_steps)(state, batch)
    assert int(metrics["loss"][1]) == 110
    assert mean(metrics["loss"]) == pytest.approx(3.818182, abs=1e-5)
    probability = np.stack([np.full(100, 1 - np.exp(-loss)) for loss in (2.0, 4.0)])  # of the wrong label
    gradient = probability[..., None] * np.array([-1.0, 1.0]) * batch["loss_mask"][..., None] / 110
    assert_near(params["logits"] - new.params["logits"], gradient, 1e-6)
    assert mean(metrics["gradient_norm"]) == pytest.approx(np.sqrt((gradient**2).sum()), rel=1e-5)


def test_multi_steps_of_optax_would_give_another_number():
    """Gradients 2 and 4 of 10 and 100 tokens: ours is 3.818, that of optax.MultiSteps 3."""

    def loss(params, batch, key, hyper):
        return {"loss": (params["w"] * batch["sum"].sum(), batch["count"].sum())}

    batch = {"sum": np.float32([20, 400]), "count": np.int32([10, 100])}
    state = table_state({"w": np.float32(0)})
    new, _ = stepper(loss, grad_accumulation_steps=2)(state, batch)
    assert new.params["w"] == pytest.approx(-420 / 110)
    theirs = optax.MultiSteps(optax.sgd(1.0), every_k_schedule=2)
    params = multi = None
    for gradient in (2.0, 4.0):
        params = {"w": jnp.float32(0)} if params is None else params
        multi = theirs.init(params) if multi is None else multi
        updates, multi = theirs.update({"w": jnp.float32(gradient)}, multi, params)
        params = optax.apply_updates(params, updates)
    assert params["w"] == pytest.approx(-3.0)


@pytest.mark.parametrize("grad_accumulation_steps", [1, 2])
def test_a_loss_that_counts_sentences_is_divided_by_sentences(grad_accumulation_steps):
    params, batch = known_batch()
    by_tokens = token_loss(TableModel())

    def by_sentences(params, batch, key, hyper):
        metrics = by_tokens(params, batch, key, hyper)
        return metrics | {"loss": (metrics["loss"][0], batch["loss_mask"].any(axis=1).sum(dtype=jnp.int32))}

    new, metrics = stepper(by_sentences, grad_accumulation_steps=grad_accumulation_steps)(table_state(params), batch)
    assert mean(metrics["loss"]) == pytest.approx(210, rel=1e-5)
    moved = np.abs(params["logits"] - new.params["logits"])[..., 1].sum()
    assert moved == pytest.approx((10 * (1 - np.exp(-2)) + 100 * (1 - np.exp(-4))) / 2, rel=1e-5)


def test_accumulation_changes_no_number():
    """Divided by the tokens and by the pieces as well, the gradient would be k times too small."""
    rng = np.random.default_rng(0)
    params = {"logits": rng.normal(size=(ROWS, 6, 5)).astype(np.float32)}
    batch = table_batch(rng.integers(0, 5, (ROWS, 6)), np.arange(6) < rng.integers(1, 7, (ROWS, 1)))
    state, loss = table_state(params, label_smoothing=0.1), token_loss(TableModel(), exact_match=True)
    whole, metrics = stepper(loss)(state, batch)
    assert mean(metrics["gradient_norm"]) > 0.1
    for pieces in (2, 4, 8):
        new, accumulated = stepper(loss, grad_accumulation_steps=pieces)(state, batch)
        assert_near(new.params, whole.params, 1e-6)
        for name in metrics:
            assert mean(accumulated[name]) == pytest.approx(mean(metrics[name]), rel=1e-5), (name, pieces)
            assert int(accumulated[name][1]) == int(metrics[name][1]), (name, pieces)


def test_accumulation_that_does_not_divide_is_one_clear_line():
    params, batch = known_batch()
    with pytest.raises(ValueError) as error:
        stepper(token_loss(TableModel()), grad_accumulation_steps=3)(table_state(params), batch)
    assert str(error.value) == "grad_accumulation_steps=3 must divide the batch of 2 rows"


@pytest.mark.parametrize("grad_accumulation_steps", [1, 2])
def test_a_batch_without_a_token_changes_nothing(grad_accumulation_steps):
    params, batch = known_batch()
    batch |= {"loss_mask": np.zeros_like(batch["loss_mask"])}
    new, metrics = stepper(token_loss(TableModel()), grad_accumulation_steps=grad_accumulation_steps)(
        table_state(params), batch
    )
    assert_same_bits(new.params, params)
    totals = MetricAccumulator()
    totals.add(metrics)
    assert totals.means()["loss"] == 0 and totals.counts["loss"] == 0 and totals.means()["gradient_norm"] == 0


@pytest.mark.parametrize("grad_accumulation_steps", [1, 2])
def test_a_batch_without_a_token_makes_no_update(grad_accumulation_steps):
    """Not by momentum, nor by weight decay, nor of the moments and the moving average; but the step is counted."""
    everything = {"b1": 0.9, "b2": 0.98, "epsilon": 1e-9, "weight_decay": 0.1, "clip_norm": 1.0, "ema": 0.9}
    everything |= {"warmup_steps": 10.0, "total_steps": 20.0, "final_lr_fraction": 0.0}
    optimizer = averaged(adamw)
    kernel = {"kernel": np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)}
    state = table_state(kernel, optimizer=optimizer, **everything)

    def loss(params, batch, key, hyper):
        errors = (params["kernel"] - 1) ** 2 * batch["loss_mask"]
        return {"loss": (errors.sum(), batch["loss_mask"].sum(dtype=jnp.int32))}

    step = stepper(loss, optimizer, cosine, grad_accumulation_steps)
    real, blank = ({"loss_mask": np.full((2, 3), value)} for value in (True, False))
    for _ in range(2):  # before anything was learned, and then with momentum
        after, metrics = step(state, blank)
        assert_same_bits((after.params, after.opt_state), (state.params, state.opt_state))
        assert int(after.step) == int(state.step) + 1
        state, learned = step(after, real)
        assert mean(learned["learning_rate"]) > mean(metrics["learning_rate"]) > 0
        assert (state.params["kernel"] != after.params["kernel"]).all()


def test_the_logged_gradient_norm_is_that_before_clipping():
    state = table_state({"w": np.float32([0, 0])}, optimizer=adamw, clip_norm=1.0, b1=0.9, b2=0.98, epsilon=1e-9)

    def loss(params, batch, key, hyper):
        return {"loss": ((params["w"] * batch["g"]).sum(), jnp.int32(2))}

    new, metrics = stepper(loss, adamw)(state, {"g": np.float32([6, 8])})
    assert mean(metrics["gradient_norm"]) == pytest.approx(5.0)
    assert_near(optax.tree_utils.tree_get(new.opt_state, "mu")["w"], np.float32([0.06, 0.08]), 1e-6)


# Counting


def counting_loss(params, batch, key, hyper):
    return {"loss": (params["w"] * batch["x"].sum(), jnp.int32(1))}


def test_the_schedule_counts_updates_and_not_microbatches():
    hyper = {
        "warmup_steps": 10.0,
        "total_steps": 20.0,
        "final_lr_fraction": 0.0,
        "b1": 0.9,
        "b2": 0.98,
        "epsilon": 1e-9,
    }
    state = table_state({"w": np.float32(1)}, optimizer=adamw, **hyper)
    step = stepper(counting_loss, adamw, cosine, grad_accumulation_steps=4)
    microbatches = np.ones((8, 1), np.float32)
    state, metrics = run(step, state, [{"x": microbatches[:4]}, {"x": microbatches[4:]}])
    assert int(state.step) == 2 and int(optax.tree_utils.tree_get(state.opt_state, "count")) == 2
    assert [mean(each["learning_rate"]) for each in metrics] == pytest.approx([0.1, 0.2])


@pytest.mark.parametrize("name", SCHEDULES)
def test_learning_rates_go_on_after_a_restart(name, tmp_path):
    hyper = {"warmup_steps": 3.0, "total_steps": 8.0, "final_lr_fraction": 0.1}
    batch, step = {"x": np.ones((1, 1), np.float32)}, stepper(counting_loss, sgd, SCHEDULES[name])
    state = table_state({"w": np.float32(1)}, **hyper)
    whole, metrics = run(step, state, 8 * [batch])
    half, before = run(step, state, 4 * [batch])
    with CheckpointManager(tmp_path, keep=1) as checkpoints:
        checkpoints.save(4, half, {})
    with CheckpointManager(tmp_path, keep=1) as checkpoints:
        restored, _ = checkpoints.restore(like=jax.eval_shape(lambda: state))
    end, after = run(step, restored, 4 * [batch])
    assert_same_bits([each["learning_rate"] for each in before + after], [each["learning_rate"] for each in metrics])
    assert_same_bits(end.params, whole.params)
    assert len({mean(each["learning_rate"]) for each in metrics}) >= 3


# Dropout


def test_dropout_of_each_step_is_its_own(model, step):
    """The same batch in each step, no learning: without new keys the losses would be equal."""
    hyper, batch = hyper_of(model) | {"peak_lr": jnp.float32(0)}, text_batch(4)
    state = small_state(model, adamw, hyper)
    _, metrics = run(step, state, 4 * [batch])
    assert len({mean(each["loss"]) for each in metrics}) == 4
    _, again = run(step, state, 4 * [batch])
    assert_same_bits(again, metrics)
    _, other = run(step, small_state(model, adamw, hyper, seed=1)._replace(params=state.params), 4 * [batch])
    assert not {mean(each["loss"]) for each in metrics} & {mean(each["loss"]) for each in other}


def test_no_two_microbatches_share_a_key():
    def loss(params, batch, key, hyper):
        drawn = jax.random.uniform(key)
        return {"loss": (params["w"], jnp.int32(1)), "first": (drawn, jnp.int32(1)), "second": (drawn**2, jnp.int32(1))}

    step, seen = stepper(loss, grad_accumulation_steps=2), set()
    state = table_state({"w": np.float32(0)})
    for _ in range(3):
        state, metrics = step(state, {"x": np.zeros(2)})
        total, squares = float(metrics["first"][0]), float(metrics["second"][0])
        apart = np.sqrt(max(0.0, 2 * squares - total**2))  # |a − b|, from a + b and a² + b²
        assert apart > 1e-3
        seen |= {round((total + apart) / 2, 4), round((total - apart) / 2, 4)}
    assert len(seen) == 6


# Many trials at once


@pytest.mark.slow
def test_many_trials_in_one_program_equal_separate_runs():
    """`jax.vmap` over learning rates, warm-ups, dropout rates and smoothings; six steps of AdamW with everything on."""
    model = small_transformer(dropout=0.1, attention_dropout=0.1, num_encoder_layers=1, num_decoder_layers=1)
    chosen = {"schedule": "noam", "weight_decay": 0.01, "clip_norm": 0.5}
    trials = []
    for changes in (
        {"peak_lr": 1e-2, "warmup_steps": 2, "label_smoothing": 0.1, "dropout": 0.1, "attention_dropout": 0.2},
        {"peak_lr": 2e-3, "warmup_steps": 5, "label_smoothing": 0.3, "dropout": 0.4, "attention_dropout": 0.05},
    ):
        hyper = hyper_of(model, label_smoothing=0.5, **chosen)
        trials.append(hyper | {name: jnp.float32(value) for name, value in changes.items()})
    states = [small_state(model, adamw, hyper) for hyper in trials]
    batches = [random_batch(4, seed) for seed in range(6)]
    step = make_train_step(token_loss(model), adamw, noam)

    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    together, metrics = run(jax.jit(jax.vmap(step, in_axes=(0, None))), stacked, batches)
    single = jax.jit(step)
    alone = [run(single, state, batches) for state in states]
    for trial, (state, separate) in enumerate(alone):
        assert_near(jax.tree.map(lambda x, trial=trial: x[trial], together.params), state.params, 1e-6)
        for step_together, step_alone in zip(metrics, separate, strict=True):
            for name, (total, count) in step_alone.items():
                assert step_together[name][1][trial] == count
                assert step_together[name][0][trial] == pytest.approx(float(total), rel=1e-5, abs=1e-6), name
    losses = np.array([[mean(each["loss"]) for each in separate] for _, separate in alone])
    assert (np.abs(losses[0] - losses[1]) > 0.01).all()  # they do differ


# Types


def test_float32_parameters_learn_under_bfloat16_compute():
    """A hundred updates of 1e-3, each of which is lost in a bfloat16 parameter: 1 − 1e-3 = 1 there."""

    def loss(params, batch, key, hyper):
        return {"loss": (matmul(batch["x"], params["kernel"], "bfloat16").sum(), jnp.int32(1))}

    state = table_state({"kernel": np.ones((1, 1), np.float32)}, peak_lr=1e-3)
    state, _ = run(stepper(loss), state, 100 * [{"x": np.ones((1, 1), np.float32)}])
    assert state.params["kernel"].dtype == jnp.float32
    assert state.params["kernel"].item() == pytest.approx(0.9, abs=1e-5)
    assert float(jnp.bfloat16(1.0) - jnp.bfloat16(1e-3)) == 1.0


def test_a_bfloat16_model_keeps_float32_parameters_moments_and_losses():
    model = small_language_model(dtype="bfloat16", dropout=0.1)
    hyper = hyper_of(model, weight_decay=0.1, label_smoothing=0.1)
    before = jax.eval_shape(lambda: small_state(model, adamw, hyper))
    after, metrics = jax.eval_shape(make_train_step(token_loss(model), adamw, cosine), before, text_batch(4))
    floats = [x for x in jax.tree.leaves((before.params, before.opt_state)) if jnp.issubdtype(x.dtype, jnp.floating)]
    assert len(floats) == 3 * len(jax.tree.leaves(before.params))
    assert {x.dtype for x in floats} == {metrics["loss"][0].dtype} == {jnp.dtype("float32")}
    assert jax.tree.map(lambda x: (x.shape, x.dtype), after) == jax.tree.map(lambda x: (x.shape, x.dtype), before)


# The state


def test_a_seed_makes_the_same_state_and_another_seed_another(model):
    hyper = hyper_of(model)
    one, same, other = (small_state(model, adamw, hyper, seed) for seed in (0, 0, 1))
    keys = [jax.random.key_data(state.key) for state in (one, same, other)]
    assert_same_bits(one.params, same.params)
    assert (keys[0] == keys[1]).all() and (keys[0] != keys[2]).any()
    assert (one.params["embedding"]["table"] != other.params["embedding"]["table"]).mean() > 0.99
    assert str(jax.random.key_impl(one.key)) == "threefry2x32" and int(one.step) == 0


def test_twenty_steps_of_one_shape_are_one_program(model, caplog):
    step, state = stepper(token_loss(model), adamw), small_state(model, adamw, hyper_of(model))
    with jax.log_compiles():
        run(step, state, [text_batch(4, seed) for seed in range(20)])
    assert compilations(caplog) == 1


def test_the_tables_of_the_tests_are_right():
    """A batch of `TableModel` has the losses that it says."""
    params, batch = known_batch()
    alone = [table_batch(batch["labels"][row : row + 1], batch["loss_mask"][row : row + 1]) for row in (0, 1)]
    losses = [
        token_loss(TableModel())({"logits": params["logits"][row : row + 1]}, one, None, {})["loss"]
        for row, one in enumerate(alone)
    ]
    assert [mean(loss) for loss in losses] == pytest.approx([2.0, 4.0], rel=1e-5)
