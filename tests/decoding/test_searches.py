"""What holds for greedy decoding, sampling, beam search and likelihoods alike."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from decoding import beam_search, greedy, log_likelihood, prefill_language_model, prefill_transformer, row_keys, sample
from decoding.likelihood import token_likelihood
from decoding.step import suppressed, take_rows
from model.embedding import embedding_lookup
from tests.decoding.samples import random_table, table_step
from tests.model.samples import assert_near, assert_same_bits, compiled, put, token_ids
from tests.training.samples import BOS, EOS, PAD, VOCAB, small_language_model, small_parameters, small_transformer

ENDS = {"max_tokens": 6, "end_id": EOS, "pad_id": PAD}
UNK = 3


def searches(step, cache, first, **options):
    """The results by name."""
    options = ENDS | options
    keys = row_keys(jax.random.key(0), jnp.arange(first.shape[0]))
    return {
        "greedy": greedy(step, cache, first, **options),
        "sample": sample(step, cache, first, keys, top_k=5, **options),
        "beam": beam_search(step, cache, first, beam_size=3, num_results=2, **options),
    }


@functools.cache
def searcher(**options):
    def run(table, states):
        return searches(table_step(table), states, jnp.full(states.shape, BOS, jnp.int32), **options)

    return compiled(run)


def search(table, states, **options):
    return searcher(**options)(table, np.asarray(states, np.int32))


def test_suppressed_ids_are_not_written_and_the_others_share_their_probability():
    """A model that would write nothing else: the result is that of a model without them, bit for bit."""
    table, never = random_table(8), [PAD, BOS, UNK]
    table[:, never] += 20
    found = search(table, range(4), suppress_ids=(PAD, BOS, UNK))
    assert_same_bits(found, search(put(table, (slice(None), never), -np.inf), range(4)))
    for name, result in found.items():
        assert not np.isin(result.tokens, [BOS, UNK]).any() and (result.tokens > 0).any(), name
        padding = result.tokens == PAD
        assert (np.diff(padding.astype(int), axis=-1) >= 0).all()  # only after the end
    assert (search(table, range(4))["greedy"].tokens <= UNK).all()


@pytest.mark.parametrize("kind", ["language model", "transformer"])
def test_cached_and_uncached_suppress_alike(kind):
    """The score of a hypothesis is what one pass over it gives for the rest of the vocabulary; and greedy is greedy."""
    model = small_language_model() if kind == "language model" else small_transformer(num_encoder_layers=1)
    context = np.concatenate([np.full((3, 1), BOS), token_ids(3, 3, vocab_size=VOCAB, low=4)], axis=1).astype(np.int32)
    out = {"suppress_ids": (PAD, BOS, UNK)}

    @compiled
    def run(params, context):
        if kind == "language model":
            start, first = prefill_language_model(model, params, context, max_tokens=6), {}
        else:
            start = prefill_transformer(model, params, context, jnp.full((3, 1), BOS, jnp.int32), max_tokens=6)
            first = {"first_id": BOS}
        best, tokens = beam_search(*start, beam_size=3, **ENDS, **out), greedy(*start, **ENDS, **out).tokens
        score = functools.partial(log_likelihood, model, params, context, **first)
        return best, score(best.tokens[:, 0], **out), score(tokens, **out), score(tokens)

    best, again, greedily, whole = run(small_parameters(model, seed=5), context)
    assert_near(again.log_probability, (best.scores * ((5 + best.lengths) / 6) ** 0.6)[:, 0], 1e-5)
    assert greedily.is_greedy.all() and (greedily.log_probability > whole.log_probability).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"suppress_ids": (6,)}, "suppress_ids must be 0 to 5, ids that have logits; got 6"),
        ({"suppress_ids": (-1,)}, "got -1"),
        ({"suppress_ids": (0, 1), "vocab_size": 2}, r"suppress_ids \(0, 1\) leave no token of 2"),
        ({"vocab_size": 7}, "vocab_size must be 1 to 6, the logits there are; got 7"),
    ],
)
def test_what_cannot_be_suppressed_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        suppressed(jnp.zeros((1, 6)), **options)


def chain_table(states, value, at):
    """A table, and the states of which each goes on for ever; row 0 meets logits `value` after `at` tokens."""

    def step(state, newest):
        row, count = state
        logits = jnp.zeros((len(row), 6)).at[:, 4].set(9.0)
        bad = (row == 0) & (count == at)
        return (row, count + 1), jnp.where(jnp.broadcast_to(bad[:, None], logits.shape), value, logits)

    return step, (jnp.arange(states), jnp.zeros(states, jnp.int32))


@pytest.mark.parametrize("value", [np.nan, -np.inf, np.inf], ids=str)
@pytest.mark.parametrize("at", [0, 3])
def test_logits_that_are_no_distribution_are_flagged_in_their_row_alone(value, at):
    step, cache = chain_table(3, value, at)
    found = compiled(lambda: searches(step, cache, jnp.full(3, BOS, jnp.int32)))()
    for name, result in found.items():
        assert result.defined.tolist() == [False, True, True], name
        assert not np.any(result.finished[0]), name
        assert np.isin(result.tokens[1], [4] if name != "sample" else range(6)).any()
    assert found["greedy"].tokens[0].tolist() == [4] * at + [PAD] * (6 - at)
    assert not found["beam"].valid[0].any() and (found["beam"].tokens[0] == PAD).all()
    assert (found["beam"].scores[0] == -np.inf).all() and found["beam"].valid[1:].all()


def test_what_comes_after_the_end_is_not_asked_for():
    """A row that has ended is fed padding as long as others go on: whatever the model makes of it."""

    def step(count, newest):
        ends = jnp.zeros((2, 6)).at[0, EOS].set(90.0).at[1, 4].set(90.0)
        after = (jnp.arange(2) == 0) & (count > 0)
        return count + 1, jnp.where(jnp.broadcast_to(after[:, None], ends.shape), jnp.nan, ends)

    options = {"beam_size": 1, "length_penalty": 0}
    first = jnp.full(2, BOS, jnp.int32)
    run = compiled(
        lambda: (
            greedy(step, jnp.zeros(2, jnp.int32), first, **ENDS),
            beam_search(step, jnp.zeros(2, jnp.int32), first, **options, **ENDS),
        )
    )
    for result in run():
        assert result.defined.all() and np.ravel(result.finished).tolist() == [True, False]


def test_a_likelihood_that_is_none_is_flagged():
    logits = np.zeros((3, 2, 6), np.float32)
    logits[1, 1], logits[2, 1] = np.nan, -np.inf
    tokens, scored = np.full((3, 2), 4), np.ones((3, 2), bool)
    found = token_likelihood(logits, tokens, scored)
    assert found.defined.tolist() == [True, False, False] and np.isnan(found.log_probability).tolist() == [0, 1, 1]
    assert not found.is_greedy[1:].any()
    unscored = token_likelihood(logits, tokens, put(scored, (slice(None), 1), False))
    assert unscored.defined.all() and np.isfinite(unscored.log_probability).all()


@pytest.mark.parametrize("ids", [np.int32, pytest.param(np.int64, marks=pytest.mark.slow)])  # 9 s each
def test_wide_integers_by_default_change_nothing(ids):
    """Under jax_enable_x64 every search takes and gives the same; beam search died of indices of two types."""
    model = small_language_model()
    prompt = np.array([[BOS, 4, 5, 6], [BOS, 7, 0, 0]])

    def run(params, prompt):
        start = prefill_language_model(model, params, prompt, (prompt != PAD).sum(axis=1), max_tokens=6)
        return searches(*start), log_likelihood(model, params, prompt, prompt[:, 1:])

    params = small_parameters(model, seed=5)
    usual = compiled(run)(params, prompt.astype(np.int32))
    with jax.enable_x64(True):
        wide = compiled(run)(params, prompt.astype(ids))
    for one, other in zip(jax.tree.leaves(usual), jax.tree.leaves(wide), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_scores_of_a_float64_model():
    model = small_language_model(dtype="float64")
    prompt = np.array([[BOS, 4, 5, 6]])
    with jax.enable_x64(True):
        found = compiled(lambda params: searches(*prefill_language_model(model, params, prompt, max_tokens=6)))(
            small_parameters(model, seed=5)
        )
    assert found["beam"].scores.dtype == np.float32 and found["beam"].defined.all()


def test_a_numpy_table_and_a_numpy_cache_are_indexed():
    table, ids = np.arange(6, dtype=np.float32).reshape(3, 2), np.array([[2, 3]])
    np.testing.assert_array_equal(embedding_lookup(table, ids), [[[4, 5], [np.nan, np.nan]]])
    np.testing.assert_array_equal(take_rows({"keys": table}, np.array([1, 1]))["keys"], table[[1, 1]])


@pytest.mark.slow
def test_numpy_parameters_and_inputs_outside_of_a_compiled_program():
    """As a checkpoint or `device_get` gives them; the same numbers as compiled."""
    small = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    for kind, model in (("prompt", small_language_model()), ("source", small_transformer(**small))):
        params = small_parameters(model, seed=5)
        assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(params))
        context, lengths = np.array([[BOS, 4, 5], [BOS, 7, 0]], np.int32), np.array([3, 2], np.int32)

        def run(params, context, lengths, kind=kind, model=model):
            if kind == "prompt":
                start, first = prefill_language_model(model, params, context, lengths, max_tokens=6), {}
            else:
                start = prefill_transformer(model, params, context, np.full((2, 1), BOS, np.int32), max_tokens=6)
                first = {"first_id": BOS}
            inputs = (context,) if kind == "prompt" else (context, context)
            whole = model.apply({"params": params}, *inputs)
            found = beam_search(*start, beam_size=2, **ENDS) if kind == "prompt" else greedy(*start, **ENDS)
            return whole, found, log_likelihood(model, params, context, context[:, 1:], **first)

        plain, once = run(params, context, lengths), compiled(run)(params, context, lengths)
        for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(once), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
