"""The likelihood of a continuation, against the whole model on each row alone."""

import functools

import jax
import numpy as np
import pytest

from decoding import log_likelihood
from tests.decoding.samples import log_softmax
from tests.model.samples import assert_near, assert_same_bits, compiled, put, token_ids
from tests.training.samples import BOS, PAD, VOCAB, small_language_model, small_parameters, small_transformer

CONTEXTS, CONTINUATIONS = (5, 1, 3), (2, 4, 3)


def ragged(lengths, seed):
    rows = token_ids(len(lengths), max(lengths), vocab_size=VOCAB, seed=seed)
    return np.where(np.arange(rows.shape[1]) < np.array(lengths)[:, None], rows, PAD)


CONTEXT, CONTINUATION = ragged(CONTEXTS, 0), ragged(CONTINUATIONS, 1)


@pytest.mark.parametrize("kind", ["language model", "transformer"])
def test_it_is_the_sum_over_the_continuation(kind):
    language = kind == "language model"
    model = small_language_model(positions="learned") if language else small_transformer(num_encoder_layers=1)
    params, first = small_parameters(model, seed=2), {} if language else {"first_id": BOS}
    score, apply = compiled(functools.partial(log_likelihood, model, **first)), compiled(model.apply)
    likelihood = score(params, CONTEXT, CONTINUATION)
    filler = token_ids(1, 8, vocab_size=VOCAB, seed=4)
    for row, (before, length) in enumerate(zip(CONTEXTS, CONTINUATIONS)):
        context, wanted = CONTEXT[row : row + 1, :before], CONTINUATION[row, :length]
        if language:
            tokens = put(filler, (0, slice(before + length)), [*context[0], *wanted])
            logits = apply({"params": params}, tokens)[0, before - 1 :]
        else:
            tokens = put(filler, (0, slice(length)), [BOS, *wanted[:-1]])
            logits = apply({"params": params}, context, tokens)[0]
        values = log_softmax(logits[:length])[np.arange(length), wanted]
        assert_near(likelihood.log_probability[row], values.sum(), 1e-5)
    assert likelihood.num_tokens.tolist() == list(CONTINUATIONS)
    if language:  # the most probable continuation of a row is greedy, and with another last token it is not
        best = int(apply({"params": params}, put(filler, (0, slice(5)), CONTEXT[0]))[0, 4].argmax())
        two = put(put(CONTINUATION, 0, [best, 0, 0, 0]), 1, [(best + 1) % VOCAB or 1, 0, 0, 0])
        assert score(params, put(CONTEXT, 1, CONTEXT[0]), two).is_greedy[:2].tolist() == [True, False]


def test_neighbours_change_no_bit_and_an_empty_context_is_loud():
    model = small_language_model()
    params = small_parameters(model, seed=2)
    score = compiled(functools.partial(log_likelihood, model))
    likelihood = score(params, CONTEXT, CONTINUATION)
    changed = score(params, put(CONTEXT, 1, PAD), put(CONTINUATION, 2, 5))
    assert_same_bits(changed.log_probability[0], likelihood.log_probability[0])
    assert np.isnan(changed.log_probability[1])


def test_ids_that_only_fill_up_the_vocabulary_have_no_probability():
    model = small_language_model()
    params = small_parameters(model, seed=2)
    full, real = (
        compiled(functools.partial(log_likelihood, model, vocab_size=size))(params, CONTEXT, CONTINUATION % 9)
        for size in (None, 9)
    )
    assert (real.log_probability > full.log_probability).all()
    assert_same_bits(real.num_tokens, full.num_tokens)


def test_what_a_target_begins_with_is_asked_for():
    context, continuation = jax.numpy.asarray(CONTEXT), jax.numpy.asarray(CONTINUATION)
    with pytest.raises(ValueError, match="first_id must be given"):
        log_likelihood(small_transformer(), {}, context, continuation)
    with pytest.raises(ValueError, match="first_id is for a Transformer"):
        log_likelihood(small_language_model(), {}, context, continuation, first_id=BOS)
