"""Input: tokens a second that the pipeline gives, against those that a small model takes; memory over epochs.

    python -m benchmarks.input                          with the dates that this repository generates
    python -m benchmarks.input SOURCE --seconds 5       with another dataset of pairs, named as in --data.source

The model is as large as those that are trained on Multi30k (4 + 4 layers, width 128), and so are the batches: 4,096
tokens in six buckets. Both numbers are of real tokens, source and target, padding not counted. Whatever the machine is,
the input should be ten times as fast or more, and memory should not grow from one epoch to the next.
"""

from __future__ import annotations

import itertools
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from data.pairs import PairData

EPOCHS = 10


@dataclass(frozen=True)
class Options:
    """Options of the benchmark."""

    tokens_per_batch: int = 4096
    """Budget of a batch."""
    seconds: float = 5.0
    """How long to measure the model."""
    layers: int = 4
    """Of the model, each way."""


def main() -> None:
    """Run the benchmark that the command line describes."""
    from cli.options import parse_options
    from cli.terminal import exit_on_error, fail
    from data.config import DataConfig
    from data.loading import load
    from data.pairs import PairData

    program, words = "python -m benchmarks.input", sys.argv[1:]
    source = words.pop(0) if words and not words[0].startswith("-") else "dates"
    try:
        options = parse_options(words, Options(), f"{program} [SOURCE]", __doc__)
        config = DataConfig(source, tokens_per_batch=options.tokens_per_batch, buckets=6)
    except ValueError as error:
        fail(program, error)
    with exit_on_error(program):
        data = load(config)
        if not isinstance(data, PairData):
            raise ValueError(f"{source} is text; wanted: a dataset of pairs")
        measure(data, options)


def measure(data: PairData, options: Options) -> dict[str, float]:
    """Measure tokens a second of input and of training, print them, and return them by name."""
    waste, tokens = data.padding()
    shapes = ", ".join("×".join(map(str, shape)) for shape in data.shapes)
    print(f"batches of {shapes}; {waste:.1%} of {tokens:,} tokens in a batch are padding, on average")
    speed, memory = read_epochs(data)
    for epoch, (rate, size) in enumerate(zip(speed, memory, strict=True), start=1):
        print(f"epoch {epoch:>2}: {rate:>12,.0f} tokens/s, {size:,.1f} MB resident")
    rate = sorted(speed)[len(speed) // 2]
    # The first epochs fill buffers and the allocator's pools.
    growth = memory[-1] - memory[1]
    taken = model_speed(data, options.seconds, options.layers)
    print(f"input {rate:,.0f} tokens/s (median), model {taken:,.0f} tokens/s: {rate / taken:,.0f} times as fast")
    print(f"memory grew by {growth:,.1f} MB from epoch 2 to epoch {EPOCHS}")
    return {"input": rate, "model": taken, "growth": growth}


def read_epochs(data: PairData) -> tuple[list[float], list[float]]:
    """Real tokens a second, and megabytes resident at the end, of each of ten epochs."""
    speed, memory = [], []
    real = sum(int(data.encoded["train"][side].lengths[rows].sum()) for rows in data.kept for side in data.tokenizers)
    batches, size = data.train_batches(seed=0), data.batches_per_epoch
    for _ in range(EPOCHS):
        clock = time.perf_counter()
        for _ in itertools.islice(batches, size):
            pass
        speed.append(real / (time.perf_counter() - clock))
        memory.append(resident())
    return speed, memory


def model_speed(data: PairData, seconds: float, layers: int) -> float:
    """Real tokens a second of training steps, each on the batch of an epoch with the most tokens, padding counted."""
    import jax

    from experiments.experiment import Config, Experiment
    from model.config import TransformerConfig
    from training.config import OptimizerConfig, TrainConfig
    from workdir.train_state import new_state

    longest = max(data.max_source_length, data.max_target_length)
    config = Config(
        data=data.config,
        model=TransformerConfig(
            d_model=128,
            num_heads=4,
            d_ff=512,
            num_encoder_layers=layers,
            num_decoder_layers=layers,
            max_length=longest + 1,
            scan_layers=True,  # to be compiled sooner
        ),
        optimizer=OptimizerConfig(),
        train=TrainConfig(),
    )
    experiment = Experiment("input", config)
    model = experiment.model(config, data.vocab_sizes)
    step = experiment.step(
        config, experiment.loss(config, model), experiment.optimizer(config), experiment.schedule(config)
    )
    epoch = itertools.islice(data.train_batches(seed=0), data.batches_per_epoch)
    batch = max(epoch, key=lambda batch: batch["inputs"]["source"].size + batch["labels"].size)
    state = jax.jit(lambda: new_state(experiment, model, {k: x.shape for k, x in batch["inputs"].items()}))()
    step = jax.jit(step, donate_argnums=0)
    state, metrics = step(state, batch)
    jax.block_until_ready(metrics)
    clock, steps = time.perf_counter(), 0
    while not steps or time.perf_counter() - clock < seconds:
        state, metrics = step(state, batch)
        jax.block_until_ready(metrics)
        steps += 1
    real = int((batch["inputs"]["source"] != 0).sum()) + int(batch["loss_mask"].sum())
    return real * steps / (time.perf_counter() - clock)


def resident() -> float:
    """Return the megabytes of this process in memory: now, or where the system does not say, at most so far."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize() / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


if __name__ == "__main__":
    from cli.terminal import run_script

    run_script(main)
