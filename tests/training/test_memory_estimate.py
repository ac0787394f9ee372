"""The line about memory: every part that will be there, in bytes that can be counted."""

import re

import jax
import pytest

from tests.training.samples import VOCAB, hyper_of, small_state, small_transformer
from training.config import TrainConfig
from training.memory_estimate import memory_line
from training.optimizer import adamw


@pytest.mark.parametrize(
    ("settings", "positions"),
    [
        ({}, 4000),
        ({"grad_accumulation_steps": 4}, 1000),
        ({"logits_chunk": 300}, 300),
        ({"grad_accumulation_steps": 4, "logits_chunk": 2000}, 1000),
    ],
)
def test_the_line_names_all_parts(settings, positions):
    """J9: the accumulator is one more copy of the parameters; a chunk or a microbatch has fewer logits at a time."""
    model = small_transformer(d_model=256, num_heads=2, d_ff=512, num_encoder_layers=1, num_decoder_layers=1)
    state = jax.eval_shape(lambda: small_state(model, adamw, hyper_of(model)))
    count = sum(leaf.size for leaf in jax.tree.leaves(state.params))
    batch = {"inputs": {}, "labels": jax.ShapeDtypeStruct((400, 10), int)}
    line = memory_line(state, batch, 1000 * VOCAB, TrainConfig(**settings))
    assert line.startswith(f"{count:,} parameters")
    sizes = {name: float(size) for name, size in re.findall(r"(\w+) ([\d.]+) MB", line)}
    wanted = {"parameters": 4 * count, "optimizer": 8 * count, "gradients": 4 * count}
    wanted |= {"accumulator": 4 * count} if settings.get("grad_accumulation_steps") else {}
    wanted |= {"logits": 4 * positions * 1000 * VOCAB}
    assert sizes == {name: round(size / 1e6, 1) for name, size in wanted.items()}
    assert "\n" not in line and "activations" in line
