"""Greedy decoding of the Transformer, against the model run on each prefix alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from decoding.transformer_step import greedy_transformer, transformer_step
from model.masks import PAD_ID
from tests.model.samples import assert_near, assert_same_bits, compiled, put, token_ids
from tests.training.samples import BOS, EOS, VOCAB, small_parameters, small_transformer

LENGTHS = (6, 3, 6, 3)
MAX_TOKENS = 8

decode = compiled(greedy_transformer, "model", "max_tokens", "first_id", "end_id")


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


def greedily(model, params, source, **options):
    chosen = {"max_tokens": MAX_TOKENS, "first_id": BOS, "end_id": EOS} | options
    return decode(model, params, source, **chosen)


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
        step, cache = transformer_step(model, params, source, MAX_TOKENS)
        return jnp.stack(jax.lax.scan(step, cache, target.T)[1], axis=0).swapaxes(0, 1)

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
        options = {"max_tokens": max_tokens, "first_id": BOS, "end_id": EOS}
        return jax.eval_shape(
            lambda params, source: greedy_transformer(model, params, source, **options), params, sources()
        )

    assert decoded(16).tokens.shape == (4, 16)
    with pytest.raises(ValueError, match="17"):
        decoded(17)
