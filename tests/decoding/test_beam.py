"""Beam search, against all sequences there are, and against the same search in Python without stopping early."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from decoding import beam_search, greedy, log_likelihood, prefill_language_model, prefill_transformer
from tests.decoding.samples import STATES, log_softmax, next_state, random_table, table_step, tree_table
from tests.model.samples import assert_near, assert_same_bits, compiled, put, token_ids
from tests.training.samples import BOS, EOS, PAD, VOCAB, small_language_model, small_parameters, small_transformer

A, B = 3, 4
ALPHAS = (-1, 0, 0.6, 1, 2)


@functools.cache
def searcher(**options):
    def run(table, cache):
        first = jnp.full(cache.shape, BOS)
        return beam_search(table_step(table), cache, first, end_id=EOS, pad_id=PAD, **options)

    return compiled(run)


def search(table, states, **options):
    return searcher(**options)(table, np.asarray(states, np.int32))


def search_tree(children, **options):
    step, cache = tree_table(children)
    run = functools.partial(beam_search, step, end_id=EOS, pad_id=PAD, **options)
    return compiled(run)(cache, np.array([BOS], np.int32))


def written(tokens):
    """Without the padding after the end."""
    tokens = tokens.tolist()
    return tuple(tokens[: tokens.index(EOS) + 1] if EOS in tokens else tokens)


def log_probability(table, state, tokens):
    total = 0.0
    for newest, token in zip([BOS, *tokens], tokens):
        state = next_state(state, newest)
        total += log_softmax(table[state])[token]
    return total


def score(total, length, alpha):
    return total / ((5 + length) / 6) ** alpha


def check_outputs(found, max_tokens):
    """One end, and then only padding; finished ones first; both sorted; no two alike."""
    for row in range(len(found.tokens)):
        texts = [written(tokens) for tokens in found.tokens[row][found.valid[row]]]
        assert len(set(texts)) == len(texts)
        for tokens, text, length, finished in zip(found.tokens[row], texts, found.lengths[row], found.finished[row]):
            assert finished == (EOS in text) and (finished or len(text) == max_tokens)
            assert len(text) == length and (tokens[length:] == PAD).all()
        keys = [(not f, -s) for f, s in zip(found.finished[row], found.scores[row][found.valid[row]])]
        assert keys == sorted(keys)


THREE = (EOS, A, B)


@pytest.fixture(scope="module")
def three_tokens():
    """Models with a vocabulary of three, EOS, A and B; the logits of other ids are −∞."""
    table = random_table(5)
    table[:, [PAD, BOS]] = -np.inf
    return table


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_wide_beam_finds_the_best_of_all_sequences(three_tokens, alpha):
    """V = 3, at most 4 tokens: every sequence is scored, in float64 (D11)."""
    states = [1, 20, 300, 77, 5]
    options = {"beam_size": 81, "num_results": 40, "max_tokens": 4, "length_penalty": alpha}
    found = search(three_tokens, states, **options)
    check_outputs(found, 4)
    for row, state in enumerate(states):
        ended = [(*start, EOS) for n in range(4) for start in itertools.product((A, B), repeat=n)]
        cut = list(itertools.product((A, B), repeat=4))
        scored = {text: score(log_probability(three_tokens, state, text), len(text), alpha) for text in ended + cut}
        wanted = sorted(ended, key=scored.get, reverse=True) + sorted(cut, key=scored.get, reverse=True)
        assert len(wanted) == 31 and found.valid[row].sum() == 31
        assert [written(tokens) for tokens in found.tokens[row, :31]] == wanted
        assert np.allclose(found.scores[row, :31], [scored[text] for text in wanted], rtol=1e-5, atol=1e-5)
        assert (found.scores[row, 31:] == -np.inf).all() and (found.tokens[row, 31:] == PAD).all()


def search_in_python(table, state, beam_size, max_tokens, alpha, num_results):
    """To the last token, whatever is in the pool."""
    live, pool = [((), 0.0)], []
    for length in range(1, max_tokens + 1):
        totals = []
        for text, total in live:
            here = functools.reduce(next_state, [BOS, *text], state)
            totals += [((*text, token), total + value) for token, value in enumerate(log_softmax(table[here]))]
        totals.sort(key=lambda one: -one[1])
        pool += [(text, score(total, length, alpha)) for text, total in totals[:beam_size] if text[-1] == EOS]
        live = [one for one in totals if one[0][-1] != EOS][:beam_size]
    cut = [(text, score(total, max_tokens, alpha)) for text, total in live]
    return (sorted(pool, key=lambda one: -one[1]) + sorted(cut, key=lambda one: -one[1]))[:num_results]


@pytest.mark.parametrize(
    ("beam_size", "num_results", "alpha"), [(1, 1, 0.6), (2, 1, 2), (4, 4, 0.6), (3, 2, -1), (4, 3, 0)]
)
def test_stopping_early_loses_nothing(beam_size, num_results, alpha):
    table, states = random_table(7, end=1.0), list(range(0, 96, 8))
    options = {"beam_size": beam_size, "num_results": num_results, "length_penalty": alpha, "max_tokens": 12}
    found = search(table, states, **options)
    check_outputs(found, 12)
    for row, state in enumerate(states):
        wanted = search_in_python(table, state, beam_size, 12, alpha, num_results)
        assert [written(tokens) for tokens in found.tokens[row]] == [text for text, _ in wanted]
        assert np.allclose(found.scores[row], [value for _, value in wanted], rtol=1e-5)


def test_it_stops_when_nothing_better_can_come():
    table, called = random_table(7, end=1.0), []
    options = {"beam_size": 3, "num_results": 2, "length_penalty": -1, "max_tokens": 12, "end_id": EOS, "pad_id": PAD}
    run = functools.partial(beam_search, table_step(table, called), **options)
    compiled(run)(np.arange(0, 96, 8, dtype=np.int32), np.full(12, BOS, np.int32))
    jax.effects_barrier()
    assert 1 < len(called) < 12


def test_a_better_hypothesis_is_waited_for():
    """The best one ends first, and a longer one overtakes it where length is favoured (D10)."""
    children = {(): {EOS: 0.5, A: 0.49, B: 0.01}, (A,): {EOS: 1.0}}
    for alpha, text, wanted in ((0, [EOS], -0.6931), (0.6, [A, EOS], -0.6503)):
        found = search_tree(children, beam_size=2, max_tokens=4, length_penalty=alpha)
        assert found.tokens[0, 0].tolist() == text + [PAD] * (4 - len(text))
        assert abs(found.scores[0, 0] - wanted) < 1e-4


@pytest.mark.parametrize(
    ("alpha", "children", "text"),
    [
        # Ahead only from the fourth token on: 0.4 once is more than 0.5 at length 4, and not yet at length 2.
        (1, {(): {EOS: 0.5, A: 0.4, B: 0.1}} | {(A,) * n: {A: 1.0} for n in range(1, 4)}, [A] * 4 + [EOS]),
        # Ahead only with the next token: at the greatest length it would be behind.
        (-1, {(): {EOS: 0.3, A: 0.6, B: 0.1}}, [A, EOS]),
    ],
)
def test_the_bound_is_that_of_the_best_length(alpha, children, text):
    found = search_tree(children, beam_size=2, max_tokens=12, length_penalty=alpha)
    assert written(found.tokens[0, 0]) == tuple(text)


def test_the_n_best_are_different_and_sorted():
    """V = 4 and five of them (D13); fewer asked for are the first of more."""
    table = random_table(6)
    table[:, [PAD, BOS]] = -np.inf
    options = {"beam_size": 5, "max_tokens": 8}
    five, two = (search(table, [3, 11], num_results=n, **options) for n in (5, 2))
    check_outputs(five, 8)
    assert five.valid.all() and five.finished.all() and np.isfinite(five.scores).all()
    assert (np.diff(five.scores, axis=1) < 0).all()
    assert_same_bits(two, five._replace(**{name: getattr(five, name)[:, :2] for name in two._fields[:-1]}))


def test_a_beam_wider_than_the_vocabulary(three_tokens):
    """Eight beams and three tokens (D15); and of a single token there are three sequences."""
    found = search(three_tokens, [9], beam_size=8, num_results=8, max_tokens=5)
    check_outputs(found, 5)
    assert found.valid.all()
    found = search(three_tokens, [9], beam_size=8, num_results=8, max_tokens=1)
    assert found.valid[0].tolist() == [True] * 3 + [False] * 5
    assert found.finished[0].tolist() == [True] + [False] * 7
    assert (found.tokens[0, 3:] == PAD).all() and (found.lengths[0, 3:] == 0).all()


def test_what_has_no_end_is_flagged_and_no_filler_is_returned():
    """Three tokens, and only A may end: it first, then the best that did not (D17)."""
    start = {(): {A: 0.4, B: 0.6}, (A,): {EOS: 1.0}, (B,): {B: 0.9, A: 0.1}, (B, B): {B: 1.0}, (B, A): {B: 1.0}}
    found = search_tree(start, beam_size=3, num_results=3, max_tokens=3, length_penalty=0)
    assert found.tokens[0].tolist() == [[A, EOS, PAD], [B, B, B], [B, A, B]]
    assert found.finished[0].tolist() == [True, False, False] and found.valid.all()
    assert_near(found.scores[0], np.log([0.4, 0.54, 0.06]), 1e-6)


def test_one_beam_is_greedy_decoding():
    table, states = random_table(7, end=0.5), np.arange(20, dtype=np.int32)
    found = search(table, states, beam_size=1, max_tokens=9, length_penalty=0)
    run = functools.partial(greedy, table_step(table), max_tokens=9, end_id=EOS, pad_id=PAD)
    decoded = compiled(run)(states, np.full(20, BOS, np.int32))
    assert_same_bits((found.tokens[:, 0], found.finished[:, 0]), (decoded.tokens, decoded.finished))


def test_a_row_does_not_depend_on_its_neighbours():
    """Neither on what they are nor on how long they go on."""
    table = random_table(7, end=1.0)
    table[STATES // 2 :, EOS] = -np.inf  # half of the states never end
    options = {"beam_size": 3, "num_results": 3, "max_tokens": 10}
    ones, others = (search(table, states, **options) for states in ([3, 700, 11], [3, 8, 900]))
    first = functools.partial(jax.tree.map, lambda x: x[0])
    assert_same_bits(first(ones), first(others))
    assert (ones.tokens[1:] != others.tokens[1:]).any()


def test_ids_that_only_fill_up_the_vocabulary_are_never_written():
    """Five real ones of eight, and the model wants the last (D21); probabilities are those of the five."""
    table = random_table(8)
    table[:, 7] = 50.0
    options = {"beam_size": 4, "num_results": 4, "max_tokens": 5}
    found = search(table, [1, 2], vocab_size=5, **options)
    assert (found.tokens < 5).all()
    assert_same_bits(found, search(table[:, :5], [1, 2], **options))


def test_a_model_that_gives_no_numbers_gives_no_hypotheses():
    table = random_table(6)
    table[:] = np.nan
    found = search(table, [1], beam_size=2, max_tokens=3)
    assert not found.valid.any() and (found.tokens == PAD).all() and not found.defined.any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam_size": 0}, "beam_size must be a positive whole number, got 0"),
        ({"num_results": 3}, "num_results=3 hypotheses want as many beams, got beam_size=2"),
        ({"length_penalty": float("nan")}, "length_penalty must be a finite number, got nan"),
        ({"length_penalty": 1e4}, "length_penalty=10000.0 is out of float32's range"),
        ({"max_tokens": 0}, "max_tokens must be at least 1, got 0"),
        ({"vocab_size": 9}, "vocab_size must be 1 to 6, the logits there are; got 9"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    chosen = {"beam_size": 2, "max_tokens": 3} | options
    with pytest.raises(ValueError, match=message):
        search(random_table(6), [1], **chosen)


def test_scores_are_those_of_the_whole_model():
    """Both models with their caches: what one forward pass over the tokens gives, for each hypothesis of each row."""
    source = put(token_ids(2, 5, vocab_size=VOCAB, low=3), (1, slice(3, None)), PAD)
    models = {"source": small_transformer(num_encoder_layers=1), "prompt": small_language_model()}
    for kind, model in models.items():
        params = small_parameters(model, seed=5)
        # Rows of different length, and both begin with BOS.
        context = source if kind == "source" else np.concatenate([np.full((2, 1), BOS, np.int32), source], axis=1)

        @compiled
        def run(params, context, model=model, kind=kind):
            if kind == "source":
                start = prefill_transformer(model, params, context, jnp.full((2, 1), BOS, jnp.int32), max_tokens=6)
            else:
                start = prefill_language_model(model, params, context, (context != PAD).sum(axis=1), max_tokens=6)
            found = beam_search(*start, beam_size=3, num_results=3, max_tokens=6, end_id=EOS, pad_id=PAD)
            repeated = jnp.repeat(context, 3, axis=0)
            first = {"first_id": BOS} if kind == "source" else {}
            return found, log_likelihood(model, params, repeated, found.tokens.reshape(6, 6), **first)

        found, likelihood = run(params, context)
        check_outputs(found, 6)
        assert (found.tokens != PAD).sum() == found.lengths.sum()  # or PAD would be taken for none
        totals = found.scores * ((5 + found.lengths) / 6) ** 0.6
        assert_near(likelihood.log_probability.reshape(2, 3), totals, 1e-5)
        assert (likelihood.num_tokens.reshape(2, 3) == found.lengths).all()


def test_moving_what_differs_is_picking_whole_rows():
    """Which is what happens to a step that is a plain function, and on other devices than a CPU."""
    model = small_language_model()
    prompt = np.concatenate([np.full((2, 1), BOS, np.int32), token_ids(2, 3, vocab_size=VOCAB, low=3)], axis=1)

    @compiled
    def both(params, prompt):
        start = prefill_language_model(model, params, prompt, max_tokens=6)
        options = {"beam_size": 3, "num_results": 3, "max_tokens": 6, "end_id": EOS, "pad_id": PAD}
        return beam_search(*start, **options), beam_search(start.step.step, *start[1:], **options)

    assert_same_bits(*both(small_parameters(model, seed=5), prompt))


def test_one_program_for_each_shape():
    run = jax.jit(
        functools.partial(beam_search, table_step(random_table(6)), beam_size=3, max_tokens=4, end_id=EOS, pad_id=PAD)
    )
    for states in ([1, 2], [5, 9], [4]):
        run(jnp.array(states, jnp.int32), jnp.full(len(states), BOS, jnp.int32))
    assert run._cache_size() == 2
