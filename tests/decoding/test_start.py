"""Decoding both models through their cache, against the model run on each prefix alone."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from decoding import greedy, prefill_language_model, prefill_transformer
from model.masks import PAD_ID
from tests.decoding.samples import greedy_transformer
from tests.model.samples import assert_near, assert_same_bits, compiled, put, token_ids
from tests.training.samples import BOS, EOS, VOCAB, small_language_model, small_parameters, small_transformer

LENGTHS = (6, 3, 6, 3)
MAX_TOKENS = 8

decode = compiled(greedy_transformer, "model", "max_tokens")


def sources(seed=0):
    """Rows of different length, filled with padding."""
    rows = token_ids(len(LENGTHS), max(LENGTHS), vocab_size=VOCAB, seed=seed, low=3)
    return np.where(np.arange(rows.shape[1]) < np.array(LENGTHS)[:, None], rows, PAD_ID).astype(np.int32)


@pytest.fixture(scope="module")
def model():
    return small_transformer(num_encoder_layers=1, embeddings="separate")


@pytest.fixture(scope="module")
def params(model):
    return small_parameters(model, seed=37)  # which ends some of the rows


def greedily(model, params, source, max_tokens=MAX_TOKENS):
    return decode(model, params, source, max_tokens=max_tokens)


def test_equals_the_whole_model_on_each_prefix_of_each_row(model, params):
    """A row alone, its source without padding, and something else in place of the future: every number made anew."""
    apply = compiled(model.apply)
    decoded, future = greedily(model, params, sources()), token_ids(1, MAX_TOKENS, vocab_size=VOCAB, low=3)
    for row, length in enumerate(LENGTHS):
        source, wanted = sources()[row : row + 1, :length], [BOS]
        while len(wanted) <= MAX_TOKENS and wanted[-1] != EOS:
            logits = apply({"params": params}, source, put(future, (0, slice(len(wanted))), wanted))
            wanted.append(int(logits[0, len(wanted) - 1].argmax()))
        assert decoded.tokens[row].tolist() == wanted[1:] + [PAD_ID] * (MAX_TOKENS + 1 - len(wanted))
        assert decoded.finished[row] == (wanted[-1] == EOS)
    assert 0 < decoded.finished.sum() < len(LENGTHS)  # both kinds are there
    assert len({tuple(row) for row in decoded.tokens.tolist()}) == len(LENGTHS)


def test_the_logits_of_each_step_are_those_of_the_whole_target(model, params):
    """And those of a row keep their bits when its neighbours change."""
    target = token_ids(len(LENGTHS), MAX_TOKENS, vocab_size=VOCAB, low=3)
    target[:, 0] = BOS

    def stepwise(params, source, target):
        step, cache, first = prefill_transformer(model, params, source, target[:, :1], max_tokens=MAX_TOKENS)
        logits = jax.lax.scan(step, cache, jnp.concatenate([first[None], target.T[1:]]))[1]
        return logits.swapaxes(0, 1)

    stepwise, whole = compiled(stepwise), compiled(model.apply)
    logits = stepwise(params, sources(), target)
    assert_near(logits, whole({"params": params}, sources(), target), 1e-5)
    other_source, other_target = (
        put(x, slice(1, None), y[1:]) for x, y in ((sources(), sources(1)), (target, target[::-1]))
    )
    others = stepwise(params, other_source, other_target)
    assert_same_bits(others[0], logits[0])
    assert (others[1:] != logits[1:]).any()


def test_a_row_keeps_its_tokens_whatever_its_neighbours_are(model, params):
    decoded = greedily(model, params, sources())
    for neighbours in (sources(1)[1:], np.full_like(sources()[1:], 5), np.full_like(sources()[1:], PAD_ID)):
        others = greedily(model, params, put(sources(), slice(1, None), neighbours))
        assert_same_bits((others.tokens[0], others.finished[0]), (decoded.tokens[0], decoded.finished[0]))


def test_more_padding_of_the_source_changes_no_token(model, params):
    wider = np.pad(sources(), [(0, 0), (0, 3)])
    assert_same_bits(greedily(model, params, wider), greedily(model, params, sources()))


def test_fewer_tokens_are_the_first_of_more(model, params):
    more, fewer = (greedily(model, params, sources(), max_tokens=count) for count in (MAX_TOKENS, 3))
    assert_same_bits(fewer.tokens, more.tokens[:, :3])
    assert_same_bits(fewer.finished, (more.tokens[:, :3] == EOS).any(axis=1))


def test_more_tokens_than_the_model_has_positions_are_refused(model, params):
    """When the program is traced; and never a position that is clamped to the last."""

    def decoded(max_tokens):
        run = functools.partial(greedy_transformer, model, max_tokens=max_tokens)
        return jax.eval_shape(run, params, sources())

    assert decoded(16).tokens.shape == (4, 16)
    with pytest.raises(ValueError, match="17; the model has max_length=16"):
        decoded(17)


def test_more_tokens_than_the_cache_was_made_for_are_refused(model, params):
    def decoded(params, source):
        start = prefill_transformer(model, params, source, jnp.full((4, 1), BOS), max_tokens=3)
        return greedy(*start, max_tokens=4, end_id=EOS, pad_id=PAD_ID)

    with pytest.raises(ValueError, match="made for 3 tokens, max_tokens=4"):
        jax.eval_shape(decoded, params, sources())


PROMPTS = (5, 1, 3)
"""Tokens of each row; the others are padding, or something in its place."""


@pytest.fixture(scope="module")
def language_model():
    model = small_language_model(num_layers=2, positions="learned")
    return model, small_parameters(model, seed=3)


@functools.cache
def continuation(model, max_tokens):
    def run(params, prompt, lengths):
        start = prefill_language_model(model, params, prompt, lengths, max_tokens=max_tokens)
        return greedy(*start, max_tokens=max_tokens, end_id=EOS, pad_id=PAD_ID)

    return compiled(run)


def test_a_prompt_is_continued_after_its_own_last_token(language_model):
    """Rows of different length in one batch give what each gives alone, without padding (D7, D8)."""
    model, params = language_model
    prompts = token_ids(3, 5, vocab_size=VOCAB, low=3)
    padded = np.where(np.arange(5) < np.array(PROMPTS)[:, None], prompts, PAD_ID)
    decoded = continuation(model, 6)(params, padded, np.array(PROMPTS))
    apply = compiled(model.apply)
    for row, length in enumerate(PROMPTS):
        wanted, filler = list(padded[row, :length]), token_ids(1, 12, vocab_size=VOCAB)
        while len(wanted) < length + 6 and wanted[-1] != EOS:
            logits = apply({"params": params}, put(filler, (0, slice(len(wanted))), wanted))
            wanted.append(int(logits[0, len(wanted) - 1].argmax()))
        written = wanted[length:]
        assert decoded.tokens[row].tolist() == written + [PAD_ID] * (6 - len(written))
    other = continuation(model, 6)(params, np.where(padded == PAD_ID, 7, padded), np.array(PROMPTS))
    assert_same_bits(other, decoded)  # whatever stands in place of padding
    assert len({tuple(row) for row in decoded.tokens.tolist()}) == 3


def test_prompt_and_continuation_want_positions(language_model):
    model, params = language_model
    for width, allowed in ((5, True), (6, False)):
        prompt = jnp.ones((1, width), int)
        run = functools.partial(prefill_language_model, model, max_tokens=12)
        if allowed:
            assert jax.eval_shape(lambda p, x, run=run: run(p, x)[1:], params, prompt)[0].seen.shape == (1, 16)
        else:
            with pytest.raises(ValueError, match=r"6 tokens and 12 more.*17; the model has max_length=16"):
                run(params, prompt)


def test_one_program_for_each_shape(language_model):
    """Other prompts of one shape, their lengths included, compile nothing; and the loop is on the device."""
    model, params = language_model
    run = jax.jit(
        lambda params, prompt, lengths: greedy(
            *prefill_language_model(model, params, prompt, lengths, max_tokens=4),
            max_tokens=4,
            end_id=EOS,
            pad_id=PAD_ID,
        )
    )
    for seed, width in ((0, 3), (1, 3), (2, 3), (0, 2)):
        run(params, jnp.asarray(token_ids(2, width, vocab_size=VOCAB, seed=seed)), jnp.array([2, 1 + seed % 2]))
    assert run._cache_size() == 2
