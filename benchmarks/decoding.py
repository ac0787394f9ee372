"""Speed of decoding: cached against uncached, greedy and beam search, and beside Hugging Face's `generate`.

    python benchmarks/decoding.py

A decoder-only model of 6 layers, d_model 384, 6 heads, vocabulary 8,192; 16 prompts of 32 tokens, continued by 128. No
row ends early. Compare ratios: times depend on the machine. The comparison wants `pip install -e .[bench]`.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import jax
import jax.numpy as jnp

from cli.options import parse_options
from cli.terminal import fail, run_script
from decoding import beam_search, greedy, prefill_language_model
from model.config import LanguageModelConfig
from model.language_model import LanguageModel

VOCAB, LAYERS, WIDTH, HEADS = 8192, 6, 384, 6
BEAMS = 4
NEVER = -1
"""An end token that no model writes."""


@dataclass(frozen=True)
class Options:
    """Options of the benchmark: the model's shape and the lengths."""

    batch: int = 16
    """Prompts."""
    prompt: int = 32
    """Tokens in each prompt."""
    tokens: int = 128
    """New tokens."""
    repeats: int = 3
    """The fastest of so many runs counts."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the products, on both sides."""
    uncached_tokens: int = 16
    """Tokens to measure the uncached model with."""


def main() -> None:
    program = "python -m benchmarks.decoding"
    try:
        args = parse_options(sys.argv[1:], Options(), program, __doc__)
    except ValueError as error:
        fail(program, error)

    config = LanguageModelConfig(
        d_model=WIDTH,
        num_heads=HEADS,
        d_ff=4 * WIDTH,
        num_layers=LAYERS,
        activation="gelu",
        positions="learned",
        dtype=args.dtype,
    )
    model = LanguageModel(config, VOCAB)
    params = jax.jit(model.init)(jax.random.key(0), jnp.ones((1, 2), jnp.int32))["params"]
    prompt = jax.random.randint(jax.random.key(1), (args.batch, args.prompt), 3, VOCAB)

    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}: {args.batch} × {args.tokens} tokens, {args.dtype}")
    searches = {"greedy": greedy, f"beam {BEAMS}": partial(beam_search, beam_size=BEAMS)}
    seconds = {}
    for name, search in searches.items():
        run = jax.jit(partial(cached, search, model, max_tokens=args.tokens))
        seconds[name] = fastest(lambda run=run: jax.block_until_ready(run(params, prompt)), args.repeats)
        report(name, seconds[name], args.batch * args.tokens, f"{run._cache_size()} compilation")

    # Each token costs the whole width, the first as much as the last: a few of them tell.
    steps = min(args.uncached_tokens, args.tokens)
    run = jax.jit(partial(uncached, model, max_tokens=args.tokens, steps=steps))
    alone = fastest(lambda: jax.block_until_ready(run(params, prompt)), args.repeats) * args.tokens / steps
    report(
        "uncached greedy", alone, args.batch * args.tokens, f"{steps} tokens measured, times {args.tokens / steps:g}"
    )
    print(f"cached is {alone / seconds['greedy']:.1f} times as fast as uncached (goal 5)")

    missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
    if missing:
        print(f"Hugging Face generate: n/a, {' and '.join(missing)} not installed (pip install -e .[bench])")
        return
    for name, beams in (("greedy", 1), (f"beam {BEAMS}", BEAMS)):
        theirs = fastest(hugging_face(prompt, args.tokens, beams, args.dtype), args.repeats)
        report(f"Hugging Face {name}", theirs, args.batch * args.tokens)
        print(f"{name}: {theirs / seconds[name]:.1f} times as fast as Hugging Face generate (goal 2)")


def cached(search: Callable, model: LanguageModel, params, prompt, *, max_tokens: int):
    start = prefill_language_model(model, params, prompt, max_tokens=max_tokens)
    return search(*start, max_tokens=max_tokens, end_id=NEVER, pad_id=0).tokens


def uncached(model: LanguageModel, params, prompt, *, max_tokens: int, steps: int):
    """The whole model over the whole sequence for each of `steps` tokens; logits of the newest alone."""
    width = prompt.shape[1]

    def advance(index, tokens):
        features = model.apply({"params": params}, tokens, method="features")
        last = jax.lax.dynamic_slice_in_dim(features, width + index - 1, 1, axis=1)
        logits = model.apply({"params": params}, last, method="logits")[:, 0]
        return tokens.at[:, width + index].set(jnp.argmax(logits, axis=-1).astype(tokens.dtype))

    return jax.lax.fori_loop(0, steps, advance, jnp.pad(prompt, [(0, 0), (0, max_tokens)]))[:, width:]


def hugging_face(prompt: jax.Array, max_tokens: int, beams: int, dtype: str) -> Callable[[], None]:
    """A GPT-2 of the same shape, its parameters random as well; bfloat16 are all of them, not only in products."""
    import numpy as np
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_layer": LAYERS, "n_embd": WIDTH, "n_head": HEADS, "vocab_size": VOCAB, "n_positions": 1024}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=1, eos_token_id=None, pad_token_id=0)).eval()
    model = model.to(getattr(torch, dtype))
    tokens = torch.from_numpy(np.array(prompt, np.int64))
    options = {"max_new_tokens": max_tokens, "min_new_tokens": max_tokens, "do_sample": False, "num_beams": beams}

    def generate() -> None:
        with torch.inference_mode():
            model.generate(tokens, attention_mask=torch.ones_like(tokens), **options)

    return generate


def fastest(run: Callable[[], object], repeats: int) -> float:
    """Measure the fastest call in seconds, compilation not counted."""
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def report(name: str, seconds: float, tokens: int, note: str = "") -> None:
    print(f"{name:<24} {seconds:7.2f} s  {tokens / seconds:8.0f} tokens/s  {note}".rstrip(), flush=True)


if __name__ == "__main__":
    run_script(main)
