"""A language model's text as it comes: the same as decoding in one call, however it is cut into pieces."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from data.tokenizers.base import BOS, EOS, PAD
from data.tokenizers.bytes import ByteTokenizer
from decoding import greedy, prefill_language_model, row_keys, sample
from inference import text_generation as streaming
from inference.generation_config import DecodingOptions
from inference.text_generation import continuation
from inference.trained_model import TrainedModel
from workdir.restore import load_run

SIGHT = 16  # positions of the model of `text_run`
CHOICE = {"temperature": 6.0, "top_k": 16, "top_p": 0.99}


@pytest.fixture(scope="module")
def loaded(text_run) -> TrainedModel:
    run = load_run(text_run)
    return run.trained_model(run.select_params("last").params)


@pytest.fixture(params=[16, 3], ids=lambda size: f"pieces of {size}")
def piece(request, monkeypatch):
    monkeypatch.setattr(streaming, "PIECE", request.param)


def streamed(loaded, prompt, number=0, **options) -> str:
    return "".join(continuation(loaded, prompt, DecodingOptions(**options), number))


@pytest.fixture(scope="module")
def in_one_call(loaded) -> list[tuple[str, int, dict, str, bool]]:
    """Prompt, number, options, and what `greedy` or `sample` makes of them, up to the last of 16 positions; and whether
    it has ended."""
    tokenizer, found = loaded.tokenizers["text"], []
    for prompt in ("", "the", "the cat sat. t"):
        ids = jnp.array([[EOS, *tokenizer.encode(prompt)]], jnp.int32)
        count = SIGHT - ids.shape[1] + 1
        ends = {"max_tokens": count, "end_id": EOS, "pad_id": PAD, "suppress_ids": (PAD, BOS)}

        @jax.jit
        def run(params, keys, ids=ids, ends=ends):
            start = prefill_language_model(loaded.model, params, ids, max_tokens=ends["max_tokens"])
            return greedy(*start, **ends), sample(*start, keys, **CHOICE, **ends)

        for number, seed in ((0, 0), (5, 1), (2, 3)):
            keys = row_keys(jax.random.key(seed, impl="threefry2x32"), jnp.array([number]))
            for decoded, options in zip(run(loaded.params, keys), ({}, {"sample": True, "seed": seed, **CHOICE})):
                text = tokenizer.decode(decoded.tokens[0])
                found.append((prompt, number, {"max_tokens": count, **options}, text, bool(decoded.finished[0])))
    return found


def test_it_is_what_one_call_gives(loaded, in_one_call, piece):
    """As far as the model sees: 16 tokens, of which the prompt and the beginning before it take their part."""
    for prompt, number, options, text, _ in in_one_call:
        assert streamed(loaded, prompt, number, **options) == text
    assert {finished for *_, finished in in_one_call} == {True, False}


def test_a_longer_text_is_read_again(loaded, piece):
    """Against the whole model on what it sees: all of the text up to 16 tokens; then the last 12 and what follows."""
    tokenizer, apply = loaded.tokenizers["text"], jax.jit(loaded.model.apply)
    for prompt in ("the cat", "the dog ran. the cat sat. the"):
        text = [EOS, *tokenizer.encode(prompt).tolist()]
        begin, first = len(text), 0
        for _ in range(30):
            if len(text) - first > SIGHT:
                first = len(text) - 12
            seen = np.zeros((1, SIGHT), np.int32)
            seen[0, : len(text) - first] = text[first:]
            logits = apply({"params": loaded.params}, seen)
            text.append(int(logits[0, len(text) - first - 1].argmax()))
        assert streamed(loaded, prompt, max_tokens=30) == tokenizer.decode(text[begin:])


def test_few_programs(loaded):
    """Other prompts, seeds and numbers of tokens compile nothing: one program writes, one reads for each 16 tokens."""
    streamed(loaded, "the", max_tokens=40, sample=True, **CHOICE)
    before = streaming._write._cache_size(), streaming._read._cache_size()
    streamed(loaded, "cat sat", 3, max_tokens=23, sample=True, seed=4, **CHOICE)
    assert (streaming._write._cache_size(), streaming._read._cache_size()) == before


def test_half_a_character_waits_for_its_other_half(loaded, monkeypatch):
    """é, ☃ and a byte that never becomes one, two bytes at a time."""
    ids = iter(np.array([*"aé☃b".encode(), 0xFF], np.int32) + 4)

    def write(model, params, cache, tokens, numbers, key, **how):
        num_given, count, _ = numbers
        new = np.array([0] * (num_given - 1) + [next(ids) for _ in range(count - num_given + 1)])
        return cache, new, np.ones(len(new), bool)

    monkeypatch.setattr(streaming, "PIECE", 2)
    monkeypatch.setattr(streaming, "_read", lambda *args, **how: None)
    monkeypatch.setattr(streaming, "_write", write)
    model = TrainedModel(loaded.model, None, {"text": ByteTokenizer()}, loaded.spec)
    pieces = list(continuation(model, "", DecodingOptions(max_tokens=8)))
    assert pieces == ["a", "é", "☃", "b\ufffd"]
