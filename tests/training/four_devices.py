"""What must hold on several devices. `test_devices.py` runs this file with pytest in a process that has four."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from tests.model.samples import assert_near
from tests.training.samples import (
    compilations,
    constant_rate,
    hyper_of,
    mean,
    pair_batch,
    run,
    sentence,
    sgd,
    small_language_model,
    small_state,
    table_state,
    text_batch,
)
from training.eval_step import evaluate, make_eval_step
from training.loss import token_loss
from training.optimizer import adamw
from training.schedules import constant
from training.sharding import batch_sharding, check_batch_divisible, data_mesh, device_put, replicated
from training.step import make_train_step


def mesh_of(count):
    return Mesh(np.array(jax.devices()[:count]), ("data",), axis_types=(AxisType.Auto,))


@functools.cache
def jitted(step, mesh):
    return jax.jit(step, donate_argnums=0, out_shardings=replicated(mesh))


def spread(step, mesh, state, batches):
    """`run` as the loop does it: the state everywhere, the batch by row."""
    state = device_put(jax.device_get(state), replicated(mesh))
    state, metrics = run(jitted(step, mesh), state, [device_put(batch, batch_sharding(mesh)) for batch in batches])
    return jax.device_get(state), metrics


@functools.cache
def plain_step(model, grad_accumulation_steps=1):
    return make_train_step(token_loss(model), sgd, constant_rate, grad_accumulation_steps)


def uneven_batch(seed):
    """Four rows of 1, 2, 3 and 10 tokens."""
    lengths = (1, 2, 3, 10)
    targets = [sentence(length - 1, 10 * seed + row) for row, length in enumerate(lengths)]
    batch = pair_batch([()] * 4, targets, length=11)
    assert tuple(batch["loss_mask"].sum(axis=1)) == lengths
    return batch | {"inputs": {"tokens": batch["inputs"]["target"]}}


MODEL = small_language_model()
BATCHES = [uneven_batch(seed) for seed in range(3)]


@functools.cache
def state_and_runs():
    """A state, and what one step and three steps of plain gradient descent make of it on one device."""
    state = small_state(MODEL, sgd, hyper_of(MODEL, peak_lr=0.5, label_smoothing=0.1))
    return state, *(spread(plain_step(MODEL), mesh_of(1), state, BATCHES[:steps]) for steps in (1, 3))


def test_the_mesh_takes_all_devices():
    assert jax.device_count() == 4
    mesh = data_mesh()
    assert mesh.shape == {"data": 4} and mesh.axis_types == (AxisType.Auto,)
    batch = device_put(text_batch(8), batch_sharding(mesh))
    assert {shard.data.shape[0] for shard in batch["labels"].addressable_shards} == {2}
    assert device_put(jnp.ones(3), replicated(mesh)).is_fully_replicated


@pytest.mark.parametrize("count", [2, 4])
def test_the_number_of_devices_changes_neither_loss_nor_gradient_nor_parameters(count):
    """Divided once by all 16 tokens, and not on each device by its own.

    The gradient to 1e-5 of its norm; then three steps that move the parameters by far more than they may differ.
    """
    state, (first, metrics), (third, _) = state_and_runs()
    first_apart, metrics_apart = spread(plain_step(MODEL), mesh_of(count), state, BATCHES[:1])
    assert metrics_apart[0]["loss"][1] == 16
    for name in ("loss", "gradient_norm"):
        assert mean(metrics_apart[0][name]) == pytest.approx(mean(metrics[0][name]), rel=1e-5)
    difference = jax.tree.map(lambda a, b: (a - b) / 0.5, first.params, first_apart.params)
    assert optax.global_norm(difference) < 1e-5 * mean(metrics[0]["gradient_norm"])

    third_apart, _ = spread(plain_step(MODEL), mesh_of(count), state, BATCHES)
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), third.params, jax.device_get(state.params))
    assert min(jax.tree.leaves(moved)) > 1e-2, moved
    assert_near(third_apart.params, third.params, 1e-5)


def test_gradients_are_clipped_after_they_are_added():
    """10 and 0.1 on two devices: the mean 5.05 is clipped to 1; clipping on each device would give 0.55."""

    def loss(params, batch, key, hyper):
        return {"loss": ((params["w"] * batch["gradient"]).sum(), batch["loss_mask"].sum(dtype=jnp.int32))}

    batch = {"gradient": np.float32([10, 0.1]), "loss_mask": np.array([True, True])}
    hyper = {"clip_norm": 1.0, "b1": 0.9, "b2": 0.98, "epsilon": 1e-9}
    state = table_state({"w": np.float32(0)}, adamw, **hyper)
    after, metrics = spread(make_train_step(loss, adamw, constant_rate), mesh_of(2), state, [batch])
    assert mean(metrics[0]["gradient_norm"]) == pytest.approx(5.05)
    assert optax.tree_utils.tree_get(after.opt_state, "mu")["w"] / 0.1 == pytest.approx(1.0)


@pytest.mark.parametrize("layout", ["everywhere", "over an axis"])
def test_the_gradient_norm_counts_every_parameter_once(layout):
    """On a mesh of 2 × 2, where replicas and pieces of a parameter lie side by side."""
    state, (wanted_state, wanted), _ = state_and_runs()
    mesh = jax.make_mesh((2, 2), ("data", "model"), axis_types=(AxisType.Auto, AxisType.Auto))

    def sharding(leaf):
        split = layout == "over an axis" and leaf.ndim > 1
        return NamedSharding(mesh, PartitionSpec(*(None,) * (leaf.ndim - 1), "model") if split else PartitionSpec())

    shardings = jax.tree.map(sharding, state)
    placed = jax.device_put(state, shardings)
    pieces = [leaf.addressable_shards[0].data.size / leaf.size for leaf in jax.tree.leaves(placed.params)]
    assert sorted(set(pieces)) == ([1.0] if layout == "everywhere" else [0.5, 1.0])
    step = jax.jit(plain_step(MODEL), out_shardings=(shardings, None))
    after, metrics = step(placed, device_put(BATCHES[0], batch_sharding(mesh)))
    assert mean(metrics["gradient_norm"]) == pytest.approx(mean(wanted[0]["gradient_norm"]), rel=1e-5)
    assert_near(jax.device_get(after.params), wanted_state.params, 1e-6)


def test_validation_knows_neither_devices_nor_accumulation():
    """Ten examples in batches of all sizes, the last one filled up; before training and after."""
    eval_step = make_eval_step(token_loss(MODEL, exact_match=True))
    examples = [sentence(1 + (3 * i) % 6, i) for i in range(10)]

    def means(params, devices, size):
        mesh = mesh_of(devices)
        batches = [
            pair_batch([()] * len(part), part, rows=size)
            for part in (examples[start : start + size] for start in range(0, 10, size))
        ]
        batches = [batch | {"inputs": {"tokens": batch["inputs"]["target"]}} for batch in batches]
        return evaluate(
            eval_step,
            device_put(params, replicated(mesh)),
            (device_put(batch, batch_sharding(mesh)) for batch in batches),
        )

    state, _, (trained, _) = state_and_runs()
    params = jax.device_get(state.params)
    before = means(params, 1, 10)
    for devices, size in ((4, 4), (4, 12), (2, 2)):
        assert means(params, devices, size) == pytest.approx(before, rel=1e-6)
    after = means(trained.params, 1, 10)
    assert after["loss"] != pytest.approx(before["loss"], rel=1e-3)
    accumulated, _ = spread(plain_step(MODEL, grad_accumulation_steps=4), mesh_of(1), state, BATCHES)
    assert means(accumulated.params, 4, 4) == pytest.approx(after, rel=1e-5)


def test_dropout_masks_do_not_depend_on_the_devices():
    model = small_language_model(dropout=0.4)
    state = small_state(model, sgd, hyper_of(model, peak_lr=0.5))
    losses = [
        [mean(each["loss"]) for each in spread(plain_step(model), mesh_of(devices), state, BATCHES)[1]]
        for devices in (1, 4)
    ]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_twenty_steps_of_the_loop_are_one_program(caplog):
    """With the loop's donation and placement: the state that comes out is placed like the one that went in."""
    mesh = data_mesh()
    initial = jax.jit(lambda: small_state(MODEL, sgd, hyper_of(MODEL)), out_shardings=replicated(mesh))
    step = jax.jit(make_train_step(token_loss(MODEL), sgd, constant), donate_argnums=0, out_shardings=replicated(mesh))
    with jax.log_compiles():
        run(step, initial(), [device_put(BATCHES[seed % 3], batch_sharding(mesh)) for seed in range(20)])
    assert compilations(caplog) == 1


def test_rows_that_cannot_be_spread_are_one_clear_line():
    mesh = data_mesh()
    check_batch_divisible(8, "data.batch_size", mesh)
    for rows, near in ((10, "8 or 12"), (3, "4"), (1, "4")):
        with pytest.raises(ValueError) as error:
            check_batch_divisible(rows, "data.batch_size", mesh)
        assert str(error.value) == f"data.batch_size={rows} must be a multiple of the 4 devices, such as {near}"
