"""The encoder–decoder model: the formula, the future, padding."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from model.config import TransformerConfig
from model.transformer import Transformer
from tests.model import reference
from tests.model.jaxprs import traced
from tests.model.samples import (
    assert_finite,
    assert_near,
    assert_same_bits,
    check_gradient,
    combinations,
    compiled,
    named,
    normal,
    parameters,
    put,
    token_ids,
)

B, S, T, V = 2, 5, 4, 11
VALID = np.array([[True, True, True, False, False], [True, False, True, True, True]])
SOURCE = token_ids(B, S, vocab_size=V) * VALID
TARGET = token_ids(B, T, vocab_size=V, seed=1)


def build(**changes):
    sizes = {"d_model": 8, "num_heads": 4, "d_ff": 12, "max_length": 8}
    layers = {"num_encoder_layers": 2, "num_decoder_layers": 2}
    return Transformer(TransformerConfig(**{**sizes, **layers, **changes}), V, V)


ROWS = combinations(
    embeddings=("shared", "tied", "separate"),
    positions=("sinusoidal", "learned", "none"),
    biases=("all", "feed_forward", "none"),
    norm_position=("pre", "post"),
    num_kv_heads=(None, 2),
    activation=("relu", "gelu"),
    dtype=("float32", "float64"),
)


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_against_the_formula(row):
    dtype = row["dtype"]
    with jax.enable_x64(dtype == "float64"):
        model = build(**row)
        params = parameters(model, S, T, dtype=dtype)
        apply = functools.partial(model.apply, mutable=["intermediates"])
        logits, kept = compiled(apply)({"params": params}, SOURCE, TARGET)
    assert logits.dtype == dtype
    wanted, weights = reference.transformer(reference.float64(params), SOURCE, TARGET, model.config)
    tolerance = {"float32": 1e-5, "float64": 1e-12}[dtype]
    assert_near(logits, wanted, tolerance)
    assert_near({name: value for name, (value,) in kept["intermediates"].items()}, weights, tolerance)


def test_gradients_against_finite_differences(x64):
    model = build(dtype="float64", norm_position="post", d_k=3, d_v=2, embeddings="shared")
    params = parameters(model, S, T, dtype="float64")
    cotangent = normal(B, T, V, dtype=np.float64)

    def loss(params, source, target):
        return (model.apply({"params": params}, source, target) * cotangent).sum()

    check_gradient(loss, params, SOURCE, TARGET)


def test_float64_is_float64_throughout(x64):
    model = build(dtype="float64", positions="learned")
    params = parameters(model, S, T, dtype="float64")
    inputs = jnp.asarray(SOURCE), jnp.asarray(TARGET)
    program = traced(jax.grad(lambda params: model.apply({"params": params}, *inputs).sum()), params)
    assert not [e.primitive.name for e in program for v in e.outvars if v.aval.dtype == jnp.float32]


def test_its_halves_make_the_whole():
    """`encode` once, `decode` and `logits` as often as wanted: what decoding builds on."""
    model = build()
    params = parameters(model, S, T)

    @compiled
    def by_halves(params, source, target, valid):
        apply = functools.partial(model.apply, {"params": params})
        memory = apply(source, method="encode")
        return apply(apply(target, memory, source_valid=valid, method="decode"), method="logits")

    whole = compiled(lambda params, *inputs: model.apply({"params": params}, *inputs))(params, SOURCE, TARGET)
    assert_near(by_halves(params, SOURCE, TARGET, VALID), whole, 1e-6)


@pytest.mark.slow
def test_source_padding_is_found_by_its_id():
    model = build()
    run = runner(model, parameters(model, S, T), dropout=False, weights=False)
    cotangent = normal(B, T, V)
    assert_near(run(SOURCE, TARGET, None, cotangent), run(SOURCE, TARGET, VALID, cotangent), 1e-7)


def test_a_shared_table_wants_one_vocabulary():
    model = Transformer(TransformerConfig(embeddings="shared"), 11, 13)
    tokens = jax.ShapeDtypeStruct((1, 2), jnp.int32)
    with pytest.raises(ValueError, match=r"embeddings='shared' wants one vocabulary.*11 and 13"):
        jax.eval_shape(model.init, jax.random.key(0), tokens, tokens)


@pytest.mark.parametrize(("source", "target"), [(9, 8), (8, 9)])
def test_a_sequence_beyond_the_longest_is_refused_as_the_program_is_traced(source, target):
    tokens = [jax.ShapeDtypeStruct((1, length), jnp.int32) for length in (source, target)]
    with pytest.raises(ValueError, match="9 tokens is longer than max_length=8"):
        jax.eval_shape(build().init, jax.random.key(0), *tokens)


@pytest.mark.parametrize("bad", [V, -1])
def test_an_id_that_does_not_exist_is_loud(bad):
    model = build()
    params = parameters(model, S, T)
    run = compiled(lambda params, *inputs: model.apply({"params": params}, *inputs))
    logits = run(params, put(SOURCE, (0, 1), bad), TARGET)
    assert np.isnan(logits[0]).all() and np.isfinite(logits[1]).all()
    logits = run(params, SOURCE, put(TARGET, (0, 2), bad))
    assert np.isnan(logits[0, 2:]).all() and np.isfinite(logits[1]).all()


# The contract on masks, in combinations of all options.

ONE_LAYER_EACH = {"num_encoder_layers": 1, "num_decoder_layers": 1}
CONTRACT = {
    "dropout": (False, True),
    "weights": (False, True),
    "layers": ("unrolled", "scan", "scan remat"),
    "norm_position": ("pre", "post"),
    "num_kv_heads": (None, 2),
    "embeddings": ("shared", "tied", "separate"),
    "dtype": ("float32", "bfloat16", "float16"),
}
CONTRACT_ROWS = combinations(**CONTRACT)
ALL_ROWS = combinations(
    product=("dropout", "weights", "layers", "jit"),
    **{**CONTRACT, "layers": ("unrolled", "scan", "remat", "scan remat"), "jit": (True, False)},
)


RUN = ("dropout", "weights", "jit")


def runner(model, params, *, dropout, weights, jit=True):
    """(source, target, source_valid, cotangent) -> (logits, attention weights or {}, gradients of their product)."""
    rates = {"dropout_rate": 0.2, "attention_dropout_rate": 0.1} if dropout else {}

    def run(params, source, target, source_valid, cotangent):
        def forward(params):
            result = model.apply(
                {"params": params},
                source,
                target,
                source_valid=source_valid,
                **rates,
                rngs={"dropout": jax.random.key(0)} if dropout else None,
                mutable=["intermediates"] if weights else False,
            )
            return result if weights else (result, {})

        logits, backward, kept = jax.vjp(forward, params, has_aux=True)
        return logits, kept, backward(cotangent)[0]

    if jit:
        # With dropout most of the time to compile would go into optimising the random bits.
        return functools.partial(compiled(run, optimized=not dropout), params)
    return lambda *arrays: jax.device_get(run(*jax.tree.map(jnp.asarray, (params, *arrays))))


def check_contract(row):
    layers, cut = row["layers"], 2
    model = build(
        **ONE_LAYER_EACH,
        positions="learned",
        scan_layers="scan" in layers,
        remat="remat" in layers,
        **{name: row[name] for name in ("norm_position", "num_kv_heads", "embeddings", "dtype")},
    )
    params = parameters(model, S, T)
    run = runner(model, params, **{name: row[name] for name in RUN if name in row})
    early = put(normal(B, T, V), np.s_[:, cut:], 0)
    wanted = run(SOURCE, TARGET, VALID, early)
    assert_finite(wanted)

    # Other target tokens in the future: no bit of logits, weights and gradients.
    logits, kept, gradients = run(SOURCE, put(TARGET, np.s_[:, cut:], (TARGET[:, cut:] + 3) % V), VALID, early)
    assert_same_bits(logits[:, :cut], wanted[0][:, :cut])
    assert_same_bits(gradients, wanted[2])
    for name, (weights,) in kept.get("intermediates", {}).items():
        if name.startswith("decoder"):
            assert_same_bits(weights[..., :cut, :], wanted[1]["intermediates"][name][0][..., :cut, :])
    assert (logits[:, cut:] != wanted[0][:, cut:]).any()

    # Random ids in the padding of the source.
    result = run(np.where(VALID, SOURCE, token_ids(B, S, vocab_size=V, seed=3)), TARGET, VALID, early)
    assert_same_bits((result[0], result[2]), (wanted[0], wanted[2]))

    # The gradient of an output is exactly 0 for later inputs and for padding, and is not for all others.
    only = put(np.zeros_like(early), np.s_[0, 1], normal(V, seed=1))
    gradients = run(SOURCE, TARGET, VALID, only)[2]
    by_target, by_source = gradients["target_positions"]["table"], gradients["source_positions"]["table"]
    assert not by_target[2:].any() and by_target[:2].any(axis=-1).all()
    assert not by_source[3:].any() and by_source[:3].any(axis=-1).all()


@pytest.mark.parametrize("row", CONTRACT_ROWS, ids=named)
def test_the_contract_on_masks(row):
    check_contract(row)


@pytest.mark.slow
@pytest.mark.parametrize("row", ALL_ROWS, ids=named)
def test_the_contract_on_masks_in_every_combination(row):
    check_contract(row)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_source_that_is_all_padding_changes_nothing(dtype):
    """Its loss weight is 0; loss and gradients are those of the batch without it."""
    model = build(**ONE_LAYER_EACH, dtype=dtype, num_kv_heads=2)
    params = parameters(model, S, T)

    def loss(params, source, target, labels, weights):
        log_p = jax.nn.log_softmax(model.apply({"params": params}, source, target))
        chosen = jnp.take_along_axis(log_p, labels[..., None], axis=-1)[..., 0]
        return -jnp.where(weights, chosen, 0).sum()

    run = compiled(jax.value_and_grad(loss))
    source, weights = put(SOURCE, 1, 0), put(np.ones((B, T), bool), 1, False)
    both = run(params, source, TARGET, TARGET, weights)
    assert_finite(both)
    assert_near(both, run(params, source[:1], TARGET[:1], TARGET[:1], weights[:1]), 1e-6)
