"""The log of a run: it never makes the loop wait, misses no step, and stops at the first number that is none."""

import json
import math
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.training.samples import (
    hyper_of,
    small_language_model,
    small_state,
    text_batch,
)
from training.finite import NonFiniteError
from training.log import MetricLogger
from training.loss import token_loss
from training.optimizer import adamw
from training.progress import Progress
from training.schedules import cosine
from training.step import make_train_step


class Writer:
    """Keeps the rows in memory."""

    def __init__(self):
        self.rows = []

    def write(self, step, split, values):
        self.rows.append((step, split, dict(values)))


class Quiet:
    """A progress display that shows nothing."""

    tokens_per_second = None

    def __init__(self):
        self.updates = []

    def update(self, step, *, loss, tokens):
        self.updates.append((step, loss, tokens))


class OnDevice:
    """A metric that is still being computed: whoever looks at its value waits for it, and is written down."""

    def __init__(self, value, step, events):
        self.value, self.step, self.events = value, step, events

    def _fetch(self, *_, **__):
        self.events.append(("fetch", self.step))
        return self.value

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self._fetch(), dtype)

    __float__ = __int__ = __index__ = __bool__ = item = tolist = block_until_ready = _fetch


def on_device(step, events, loss=2.0):
    events.append(("dispatch", step))
    names = {"loss": (np.float32(loss), np.int32(1)), "gradient_norm": (np.float32(1), np.int32(1))}
    return {name: tuple(OnDevice(part, step, events) for part in pair) for name, pair in names.items()}


def metrics(loss=2.0, count=1, gradient_norm=1.0):
    one = jnp.int32(1)
    return {
        "loss": (jnp.float32(loss * count), jnp.int32(count)),
        "gradient_norm": (jnp.float32(gradient_norm), one),
    }


def test_a_window_is_fetched_after_the_step_that_follows_it_was_dispatched():
    events, writer = [], Writer()
    log = MetricLogger(writer, Quiet(), every=10)
    for step in range(1, 26):
        log.add(step, on_device(step, events))
    fetches = [(place, step) for place, (what, step) in enumerate(events) if what == "fetch"]
    assert [step for _, step in fetches] == [step for step in range(1, 21) for _ in range(4)]  # each number once
    for window, following in ((range(1, 11), 11), (range(11, 21), 21)):
        places = [place for place, step in fetches if step in window]
        dispatched = events.index(("dispatch", following))
        assert places == list(range(dispatched + 1, dispatched + 41))  # one after another, and nothing in between
    assert [step for step, _, _ in writer.rows] == [10, 20]
    log.flush(last=True)
    assert [step for step, _, _ in writer.rows] == [10, 20, 25]


def test_a_row_is_the_mean_over_all_tokens_of_its_window():
    writer, quiet = Writer(), Quiet()
    log = MetricLogger(writer, quiet, every=2)
    for step, (loss, count) in enumerate([(2.0, 10), (4.0, 100), (1.0, 5), (1.0, 5), (7.0, 3)], start=1):
        log.add(step, metrics(loss, count, gradient_norm=step))
    log.flush(last=True)
    rows = [
        (step, split, values["loss"], values["gradient_norm"], values["tokens"]) for step, split, values in writer.rows
    ]
    assert rows == [
        (2, "train", pytest.approx(420 / 110), 1.5, 110),
        (4, "train", 1.0, 3.5, 10),
        (5, "train", 7.0, 5.0, 3),
    ]
    assert [(step, tokens) for step, _, tokens in quiet.updates] == [(2, 110), (4, 10), (5, 3)]


def test_a_row_has_the_learning_rate_of_its_own_step():
    """And not the mean of its window, also where that was settled before its end."""
    writer, one = Writer(), jnp.int32(1)
    log = MetricLogger(writer, Quiet(), every=4)
    for step in range(1, 11):
        log.add(step, metrics() | {"learning_rate": (jnp.float32(1 / step), one)})
        if step == 6:
            log.flush()
    log.flush(last=True)
    rates = [(step, values["learning_rate"]) for step, _, values in writer.rows]
    assert rates == [(step, float(np.float32(1 / step))) for step in (4, 8, 10)]


def test_settling_in_the_middle_of_a_window_changes_no_row():
    """Nor does it to stop there, and to go on with what was saved (as JSON)."""
    rows = []
    for stops in ((), (2, 4, 7)):
        writer = Writer()
        log = MetricLogger(writer, Quiet(), every=4)
        log.flush()
        for step in range(1, 11):
            log.add(step, metrics(loss=step, count=step))
            if step in stops:
                log.flush()
                log.flush()
                log = MetricLogger(writer, Quiet(), 4, json.loads(json.dumps(log.pending)))
        log.flush()
        log.flush(last=True)
        rows.append(writer.rows)
    assert rows[0] == rows[1] and [step for step, _, _ in rows[0]] == [4, 8]
    assert [values["tokens"] for _, _, values in rows[0]] == [10, 26]
    log.add(11, metrics(count=11))
    log.flush(last=True)
    assert writer.rows[-1][0] == 11 and writer.rows[-1][2]["tokens"] == 9 + 10 + 11


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(("name", "text"), [("loss", "loss"), ("gradient_norm", "gradient norm")])
@pytest.mark.parametrize("wrong", [5, 6, 8])
def test_a_number_that_is_none_is_found_and_its_step_named(wrong, name, text, bad):
    """In the first, a middle and the last step of a window."""
    writer = Writer()
    log = MetricLogger(writer, Quiet(), every=4)
    with pytest.raises(NonFiniteError) as error:
        for step in range(1, 12):
            log.add(step, metrics(**({name: bad} if step >= wrong else {})))
    assert str(error.value) == f"the {text} at step {wrong} is {bad}"
    assert [step for step, _, _ in writer.rows] == [4]  # the window with it is not written


def test_settling_finds_it_too():
    log = MetricLogger(Writer(), Quiet(), every=100)
    for step in range(1, 4):
        log.add(step, metrics(loss=math.nan if step == 2 else 1.0))
    with pytest.raises(NonFiniteError, match="the loss at step 2 is nan"):
        log.flush()


def test_speed_is_that_of_the_device_and_not_of_dispatching():
    """The windows together take as long as the clock on the wall says; what comes before the first is compilation."""

    @jax.jit
    def slow(x):
        return jax.lax.fori_loop(0, 60, lambda _, x: jnp.tanh(x @ x), x)

    x, writer = jnp.full((200, 200), 0.01), Writer()
    slow(x).block_until_ready()
    with Progress(total=24) as progress:
        log, start, dispatching = MetricLogger(writer, progress, every=4), None, 0.0
        for step in range(1, 25):
            before = time.monotonic()
            x = slow(x)
            dispatching += time.monotonic() - before
            log.add(step, metrics(count=1000) | {"trace": (x[0, 0], jnp.int32(1))})
            if start is None and writer.rows:
                start = time.monotonic()
        log.flush()
        wall = time.monotonic() - start
    assert "tokens_per_second" not in writer.rows[0][2]
    windows = sum(values["tokens"] / values["tokens_per_second"] for _, _, values in writer.rows[1:])
    assert windows == pytest.approx(wall, rel=0.1)


def test_500_steps_leave_nothing_behind():
    """No arrays, and no memory of the process."""
    model = small_language_model()
    state = small_state(model, adamw, hyper_of(model))
    step_function = jax.jit(make_train_step(token_loss(model), adamw, cosine), donate_argnums=0)
    batches, log = [text_batch(2, seed) for seed in range(4)], MetricLogger(Writer(), Quiet(), every=10)
    arrays, memory = [], []
    for step in range(1, 601):
        state, latest = step_function(state, jax.device_put(batches[step % 4]))
        log.add(step, latest)
        if step in (100, 600):
            del latest
            log.flush()
            arrays.append(len(jax.live_arrays()))
            memory.append(resident_megabytes())
    assert arrays[0] == arrays[1]
    assert memory[1] - memory[0] < 30


def resident_megabytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6
