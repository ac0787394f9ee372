"""The line about memory: every part that will be there, in bytes that can be counted."""

import re

import jax

from tests.training.samples import LENGTH, VOCAB, hyper_of, small_state, small_transformer
from training.memory import memory_line
from training.optimizer import adamw


def test_the_line_names_parameters_moments_gradients_and_logits():
    model = small_transformer(d_model=256, num_heads=2, d_ff=512, num_encoder_layers=1, num_decoder_layers=1)
    state = jax.eval_shape(lambda: small_state(model, adamw, hyper_of(model)))
    count = sum(leaf.size for leaf in jax.tree.leaves(state.params))
    line = memory_line(state, {"source": (1000, LENGTH), "target": (1000, 2 * LENGTH)}, {"source": 99, "target": VOCAB})
    assert line.startswith(f"{count:,} parameters")
    sizes = {name: float(size) for name, size in re.findall(r"(\w+) ([\d.]+) MB", line)}
    wanted = {"parameters": 4 * count, "optimizer": 8 * count, "gradients": 4 * count}
    wanted |= {"logits": 4 * 1000 * 2 * LENGTH * VOCAB}
    assert sizes == {name: round(size / 1e6, 1) for name, size in wanted.items()}
    assert "\n" not in line and "activations" in line
