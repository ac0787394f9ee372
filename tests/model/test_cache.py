"""The cache: token by token, or a prompt at once, the logits are those of the whole sequence."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from decoding.step import take_rows
from model.cache import Cache, allocate_slots, cache_dtype, empty_cache, reorder_cache
from model.components import default_components
from model.config import LanguageModelConfig, TransformerConfig
from model.language_model import LanguageModel, language_model_logits, language_model_with_cache
from model.multi_head import KeyValue
from model.positions import rotary_positions
from model.stack import split_layers
from model.transformer import Transformer, precompute_cross_kv, transformer_logits, transformer_with_cache
from tests.model.samples import (
    assert_near,
    assert_same_bits,
    combinations,
    compiled,
    named,
    parameters,
    put,
    token_ids,
)

B, P, N, S, V = 3, 5, 4, 6, 11  # rows, prompt width, tokens after it, source width, vocabulary
LENGTHS = np.array([5, 2, 3])
VALID = np.arange(P) < LENGTHS[:, None]
TOKENS = token_ids(B, P + N, vocab_size=V)
"""Row b: LENGTHS[b] tokens of prompt and N more, then something else that is in their future."""
PROMPT = np.where(VALID, TOKENS[:, :P], 0)
AFTER = LENGTHS[:, None] + np.arange(N)
NEXT = np.take_along_axis(TOKENS, AFTER, axis=1)
SOURCE = put(put(token_ids(B, S, vocab_size=V, seed=1), (1, slice(3, None)), 0), (2, slice(5, None)), 0)
SIZES = {"d_model": 8, "num_heads": 4, "d_ff": 12, "max_length": 12}
WIDTHS = {"default": {}, "free": {"d_k": 4, "d_v": 3}}
TOLERANCE = {"float32": 1e-5, "bfloat16": 3e-2, "float16": 3e-3}
"""Of the largest logit. In narrow types, sums in another order round some operand of the next product differently."""

OPTIONS = {
    "dtype": ("float32", "bfloat16"),
    "norm_position": ("pre", "post"),
    "num_kv_heads": (None, 2),
    "widths": ("default", "free"),
    "positions": ("sinusoidal", "learned", "rotary"),
    "biases": ("all", "none"),
    "scan_layers": (False, True),
}


def configured(config, row):
    """The config of `row`, and its parts: rotary positions are not in the config but handed in."""
    row = dict(row)
    turned = row["positions"] == "rotary"
    changes = WIDTHS[row.pop("widths")] | row | ({"positions": "none", "d_k": 4} if turned else {})
    config = config(**SIZES, **changes)
    return config, dataclasses.replace(default_components(config), rope=rotary_positions(config) if turned else None)


def language_model(row):
    config, components = configured(
        functools.partial(LanguageModelConfig, num_layers=2 if row.get("scan_layers") else 1), row
    )
    return LanguageModel(config, V, components)


def transformer(row):
    config, components = configured(
        functools.partial(TransformerConfig, num_encoder_layers=1, num_decoder_layers=1), row
    )
    return Transformer(config, V, V, components)


def extender(model, params, source=None, source_valid=None):
    """(cache, tokens, valid) -> (cache, logits), the parameters split and the source read once."""
    setting = {"config": model.config, "components": model.components}
    if isinstance(model, LanguageModel):
        split = {**params, "layers": split_layers(params["layers"])}
        extend, logits = functools.partial(language_model_with_cache, split, **setting), language_model_logits
    else:
        source_valid = source != 0 if source_valid is None else source_valid
        memory = model.apply({"params": params}, source, source_valid=source_valid, method="encode")
        split = {**params, "decoder": split_layers(params["decoder"])}
        memory = precompute_cross_kv(split, memory, config=model.config, source_valid=source_valid)
        extend = functools.partial(transformer_with_cache, split, memory=memory, source_valid=source_valid, **setting)
        logits = transformer_logits

    def with_logits(cache, tokens, valid=None):
        cache, features = extend(cache, tokens, valid=valid)
        return cache, logits(params, features, config=model.config)

    return with_logits


def stepped(extend, cache, tokens):
    """The cache and the logits [B, T, V] after single steps."""
    cache, logits = jax.lax.scan(lambda cache, token: extend(cache, token[:, None]), cache, tokens.T)
    return cache, logits[:, :, 0].swapaxes(0, 1)


def fresh(model, rows=B, size=P + N):
    config = model.config
    layers = config.num_layers if isinstance(model, LanguageModel) else config.num_decoder_layers
    return empty_cache(config, layers, rows, size)


def logits_both_ways(model):
    """(params, source) -> the logits of whole rows; those of a ragged prompt at once, and then of single steps; and the
    last cache."""

    def run(params, source):
        tokens, extend = jnp.asarray(TOKENS), extender(model, params, source)
        inputs = (tokens,) if source is None else (source, tokens)
        whole = model.apply({"params": params}, *inputs)
        cache, at_once = extend(fresh(model), jnp.asarray(PROMPT), jnp.asarray(VALID))
        cache, after = stepped(extend, cache, jnp.asarray(NEXT))
        return whole, at_once, after, cache

    return compiled(run)


def check(model, params, source):
    config = model.config
    whole, at_once, after, cache = logits_both_ways(model)(params, source)
    tolerance = TOLERANCE[config.dtype]
    assert_near(at_once[VALID], whole[:, :P][VALID], tolerance)
    assert_near(after, np.take_along_axis(whole, AFTER[..., None], axis=1), tolerance)
    for layer in cache.layers:
        assert layer.key.shape == (B, config.kv_heads, P + N, config.key_width)
        assert layer.value.shape == (B, config.kv_heads, P + N, config.value_width)
        assert layer.key.dtype == layer.value.dtype == cache_dtype(config.dtype)


@pytest.mark.parametrize(
    "row",
    [
        *combinations(**OPTIONS, embeddings=("tied", "separate")),
        {"dtype": "float16", "widths": "default", "positions": "none", "num_layers": 1},
    ],
    ids=named,
)
def test_the_language_model_gives_the_logits_of_whole_rows(row):
    model = language_model(row)
    check(model, parameters(model, P), None)


@pytest.mark.parametrize(
    "row",
    [
        {"embeddings": "shared", "dtype": "bfloat16", "num_kv_heads": 2, "widths": "free", "positions": "learned"},
        {"embeddings": "tied", "norm_position": "post", "widths": "default", "positions": "rotary"},
        {"embeddings": "separate", "widths": "free", "positions": "rotary", "biases": "all", "scan_layers": True},
    ],
    ids=named,
)
def test_the_transformer_gives_the_logits_of_whole_rows(row):
    model = transformer(row)
    check(model, parameters(model, S, P), SOURCE)


ROW = {"positions": "learned", "widths": "default", "num_kv_heads": 2}


@pytest.fixture(scope="module")
def model():
    return transformer(ROW)


@pytest.fixture(scope="module")
def params(model):
    return parameters(model, S, P)


@pytest.fixture(scope="module")
def decode(model):
    """(params, source, prompt, valid, next tokens, slots) -> the logits after the prompt and each of the next."""

    def run(params, source, prompt, valid, tokens, size):
        extend = extender(model, params, source)
        cache, at_once = extend(fresh(model, prompt.shape[0], size), prompt, valid)
        return at_once, stepped(extend, cache, tokens)[1]

    return compiled(run, "size")


def test_neighbours_and_what_stands_at_padding_change_no_bit(params, decode):
    logits = decode(params, SOURCE, PROMPT, VALID, NEXT, size=P + N)
    padded = np.where(VALID, PROMPT, -1)  # an id that does not exist makes NaN
    others = [put(x, [1, 2], y[[2, 1]] % 9 + 1) for x, y in ((SOURCE, SOURCE), (padded, PROMPT), (NEXT, NEXT))]
    changed = decode(params, *others[:2], put(VALID, 1, VALID[2]), others[2], size=P + N)
    same = decode(params, SOURCE, padded, VALID, NEXT, size=P + N)
    assert_same_bits(changed[1][0], logits[1][0])
    assert_same_bits(same[1], logits[1])
    assert (changed[1][1:] != logits[1][1:]).any()


def test_a_longer_cache_more_padding_and_fewer_rows_change_nothing(params, decode):
    logits = decode(params, SOURCE, PROMPT, VALID, NEXT, size=P + N)[1]
    assert_near(decode(params, SOURCE, PROMPT, VALID, NEXT, size=12)[1], logits, 1e-5)
    wide = [(0, 0), (0, 2)]
    inputs = np.pad(SOURCE, wide), np.pad(PROMPT, wide), np.pad(VALID, wide)
    assert_near(decode(params, *inputs, NEXT, size=P + N + 2)[1], logits, 1e-5)
    alone = decode(params, SOURCE[1:2, :3], PROMPT[1:2, :2], VALID[1:2, :2], NEXT[1:2], size=2 + N)[1]
    assert_near(alone, logits[1:2], 1e-5)


def test_padding_on_the_left_is_padding(params, decode):
    """Positions are counted without it (D7)."""
    logits = decode(params, SOURCE, PROMPT, VALID, NEXT, size=P + N)[1]
    turned = [np.stack([np.roll(row, P - n) for row, n in zip(x, LENGTHS)]) for x in (PROMPT, VALID)]
    assert_near(decode(params, SOURCE, *turned, NEXT, size=P + N)[1], logits, 1e-5)


def test_one_source_answers_the_beams_that_follow_each_other(model, params, decode):
    """Its keys and values are not repeated for them."""

    def beams(params, source, tokens):
        extend = extender(model, params, source)
        return stepped(extend, fresh(model, 2 * B), tokens)[1]

    tokens = token_ids(2 * B, N, vocab_size=V, seed=3)
    repeated = np.repeat(SOURCE, 2, axis=0)
    assert_near(compiled(beams)(params, SOURCE, tokens), compiled(beams)(params, repeated, tokens), 1e-5)


def test_rows_are_taken_with_their_past(model, params):
    """All that a row knows moves with it; the sources are as many as the rows, and move as well."""
    rows = np.array([2, 0, 0], np.int32)

    @compiled
    def run(params, source, other_source):
        cache, _ = extender(model, params, source)(fresh(model), jnp.asarray(PROMPT), jnp.asarray(VALID))
        stay = extender(model, params, source)(cache, jnp.asarray(NEXT[:, :1]))[1]
        move = extender(model, params, other_source)(take_rows(cache, jnp.asarray(rows)), jnp.asarray(NEXT[rows, :1]))[
            1
        ]
        return stay, move

    stay, move = run(params, SOURCE, SOURCE[rows])
    assert_near(move, stay[rows], 1e-5)


@pytest.mark.parametrize("used", [0, 3, 17, 33, 40])
def test_beams_take_the_place_of_their_parents(used):
    """As if whole rows were picked, wherever the first slot lies that they do not have in common."""
    groups, width, size, rng = 5, 3, 40, np.random.default_rng(used)
    same = np.minimum([0, 2, 17, 40, 31], used).astype(np.int32)
    parents = np.array([[0, 0, 1], [2, 1, 0], [1, 1, 1], [0, 2, 2], [0, 1, 2]], np.int32)
    layers = []
    for _ in range(2):
        x = rng.normal(size=(groups, width, 2, size, 4)).astype(np.float32)
        in_common = np.arange(size)[:, None] < same[:, None, None, None, None]
        layers.append(KeyValue(*[np.where(in_common, x[:, :1], x).reshape(-1, 2, size, 4)] * 2))
    seen = rng.random((groups * width, size)) < 0.5
    length = rng.integers(9, size=groups * width)
    cache = jax.tree.map(jnp.asarray, Cache(tuple(layers), seen, length, np.int32(used)))
    moved = jax.jit(reorder_cache)(cache, parents, same)
    rows = jnp.asarray((parents + width * np.arange(groups)[:, None]).reshape(-1))
    whole = take_rows(cache, rows)
    for mine, theirs in zip(moved.layers, whole.layers, strict=True):
        for x, y in zip(mine, theirs):
            assert_same_bits(x[:, :, :used], y[:, :, :used])
    assert_same_bits(moved.seen, whole.seen)
    assert_same_bits(moved.length, whole.length)


def test_a_full_cache_is_never_overwritten_in_silence(model, params):
    """Refused where the number of tokens is known; NaN, and nothing merely wrong, in a compiled program."""
    tokens = jnp.asarray(TOKENS[:, :3])

    def run(params, source, tokens):
        return stepped(extender(model, params, source), fresh(model, size=2), tokens)

    _, logits = compiled(run)(params, SOURCE, tokens)
    assert np.isfinite(logits[:, :2]).all() and np.isnan(logits[:, 2:]).all()
    with pytest.raises(ValueError, match="1 more tokens do not fit into a cache of 2 slots, 2 of them used"):
        allocate_slots(fresh(model, size=2)._replace(used=jnp.int32(2)), jnp.ones((B, 1), bool))
    with pytest.raises(ValueError, match="3 more tokens do not fit into a cache of 2 slots, 0 of them used"):
        allocate_slots(fresh(model, size=2), jnp.ones((B, 3), bool))


@pytest.mark.parametrize("size", [0, 13])
def test_a_cache_has_as_many_slots_as_the_model_has_positions(model, size):
    with pytest.raises(ValueError, match=f"1 to max_length=12 slots, got {size}"):
        fresh(model, size=size)
