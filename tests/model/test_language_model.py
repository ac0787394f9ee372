"""The decoder-only model: the formula, the future, padding, packed documents."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from model.config import LanguageModelConfig
from model.language_model import LanguageModel
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

B, T, V = 2, 6, 11
TOKENS = token_ids(B, T, vocab_size=V)
VALID = np.array([[True, True, True, True, False, False], [False, True, True, False, True, True]])


def build(**changes):
    sizes = {"d_model": 8, "num_heads": 4, "d_ff": 12, "num_layers": 2, "max_length": 8}
    return LanguageModel(LanguageModelConfig(**{**sizes, **changes}), V)


ROWS = combinations(
    embeddings=("tied", "separate"),
    positions=("sinusoidal", "learned", "none"),
    biases=("all", "feed_forward", "none"),
    norm_position=("pre", "post"),
    num_kv_heads=(None, 2),
    activation=("relu", "gelu"),
    dtype=("float32", "float64"),
    extra=("nothing", "valid", "segments"),
)
EXTRA = {
    "nothing": {},
    "valid": {"valid": VALID},
    "segments": {
        "segments": np.array([[1, 1, 2, 2, 2, 0], [1, 2, 2, 3, 3, 3]]),
        "positions": np.array([[0, 1, 0, 1, 2, 0], [0, 0, 1, 0, 1, 2]]),
    },
}


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_against_the_formula(row):
    row, dtype = dict(row), row["dtype"]
    extra = EXTRA[row.pop("extra")]
    with jax.enable_x64(dtype == "float64"):
        model = build(**row)
        params = parameters(model, T, dtype=dtype)
        apply = functools.partial(model.apply, mutable=["intermediates"])
        logits, kept = compiled(apply)({"params": params}, TOKENS, **extra)
    assert logits.dtype == dtype
    wanted, weights = reference.language_model(reference.float64(params), TOKENS, model.config, **extra)
    tolerance = {"float32": 1e-5, "float64": 1e-12}[dtype]
    assert_near(logits, wanted, tolerance)
    assert_near({name: value for name, (value,) in kept["intermediates"].items()}, weights, tolerance)


def test_gradients_against_finite_differences(x64):
    model = build(dtype="float64", activation="gelu", positions="learned", biases="all", num_kv_heads=2)
    params = parameters(model, T, dtype="float64")
    cotangent = normal(B, T, V, dtype=np.float64)

    def loss(params, tokens, valid):
        return (model.apply({"params": params}, tokens, valid=valid) * cotangent).sum()

    check_gradient(loss, params, TOKENS, VALID)


def test_float64_is_float64_throughout(x64):
    model = build(dtype="float64", positions="learned")
    params = parameters(model, T, dtype="float64")
    gradient = jax.grad(lambda params: model.apply({"params": params}, jnp.asarray(TOKENS)).sum())
    narrow = [e.primitive.name for e in traced(gradient, params) for v in e.outvars if v.aval.dtype == jnp.float32]
    assert not narrow


@pytest.mark.parametrize("remat", [False, True])
def test_bfloat16_is_for_products_only(remat):
    """Every product has bfloat16 operands and a float32 result, backward too; nothing else is computed in bfloat16."""
    model = build(dtype="bfloat16", num_kv_heads=2, biases="all", remat=remat)
    params = parameters(model, T)

    def gradient(params, key):
        def loss(params):
            rates = {"dropout_rate": 0.1, "attention_dropout_rate": 0.1, "rngs": {"dropout": key}}
            return (model.apply({"params": params}, jnp.asarray(TOKENS), valid=jnp.asarray(VALID), **rates) ** 2).sum()

        return jax.grad(loss)(params)

    program = traced(gradient, params, jax.random.key(0))
    products = [e for e in program if e.primitive.name == "dot_general"]
    assert len(products) >= 3 * (2 * 8 + 1)  # forward, and two backward, of eight a layer and the last
    for e in products:
        assert [v.aval.dtype for v in e.invars] == [jnp.bfloat16] * 2 and e.outvars[0].aval.dtype == jnp.float32
    others = {e.primitive.name for e in program for v in e.outvars if v.aval.dtype == jnp.bfloat16}
    assert others <= {
        "convert_element_type",
        "transpose",
        "reshape",
        "layout_constraint",
        "jit",
        "remat2",
        "checkpoint",
    }


# The contract on masks, in combinations of all options.

CONTRACT = {
    "dropout": (False, True),
    "weights": (False, True),
    "padding": (False, True),
    "layers": ("unrolled", "scan", "scan remat"),
    "norm_position": ("pre", "post"),
    "num_kv_heads": (None, 2),
    "dtype": ("float32", "bfloat16", "float16"),
}
CONTRACT_ROWS = combinations(product=("dropout", "weights", "padding"), **CONTRACT)
ALL_ROWS = combinations(
    product=("dropout", "weights", "padding", "layers", "jit"),
    **{**CONTRACT, "layers": ("unrolled", "scan", "remat", "scan remat"), "jit": (True, False)},
)


RUN = ("dropout", "weights", "jit")


def runner(model, params, *, dropout, weights, jit=True):
    """(tokens, valid, cotangent) -> (logits, attention weights or {}, gradients of logits · cotangent)."""
    rates = {"dropout_rate": 0.2, "attention_dropout_rate": 0.1} if dropout else {}

    def run(params, tokens, valid, cotangent):
        def forward(params):
            result = model.apply(
                {"params": params},
                tokens,
                valid=valid,
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
    layers, cut = row["layers"], 4
    model = build(
        positions="learned",
        scan_layers="scan" in layers,
        remat="remat" in layers,
        **{name: row[name] for name in ("norm_position", "num_kv_heads", "dtype")},
    )
    run = runner(model, parameters(model, T), **{k: row[k] for k in RUN if k in row})
    valid = VALID if row["padding"] else None
    early = put(normal(B, T, V), np.s_[:, cut:], 0)
    wanted = run(TOKENS, valid, early)
    assert_finite(wanted)

    # Other tokens in the future: no bit of logits, weights and gradients.
    logits, kept, gradients = run(put(TOKENS, np.s_[:, cut:], (TOKENS[:, cut:] + 3) % V), valid, early)
    assert_same_bits(logits[:, :cut], wanted[0][:, :cut])
    assert_same_bits(gradients, wanted[2])
    for name, weights in kept.get("intermediates", {}).items():
        assert_same_bits(weights[0][..., :cut, :], wanted[1]["intermediates"][name][0][..., :cut, :])
    assert (logits[:, cut:] != wanted[0][:, cut:]).any()

    # The gradient of an output is exactly 0 for what comes later, and is not for itself and earlier ones.
    only = put(np.zeros_like(early), np.s_[:, 2], normal(B, V, seed=1))
    by_position = run(TOKENS, valid, only)[2]["positions"]["table"]
    assert not by_position[3:].any() and by_position[:3].any(axis=-1).all()

    # Random ids where nobody may look.
    if row["padding"]:
        seen = normal(B, T, V, seed=2) * VALID[..., None]
        before, after = (run(tokens, valid, seen) for tokens in (TOKENS, np.where(VALID, TOKENS, (TOKENS + 5) % V)))
        assert_same_bits(after[0][VALID], before[0][VALID])
        assert_same_bits(after[2], before[2])


@pytest.mark.parametrize("row", CONTRACT_ROWS, ids=named)
def test_the_contract_on_masks(row):
    check_contract(row)


@pytest.mark.slow
def test_the_contract_on_masks_op_by_op():
    check_contract({**CONTRACT_ROWS[-1], "layers": "unrolled", "dtype": "bfloat16", "jit": False})


@pytest.mark.slow
@pytest.mark.parametrize("row", ALL_ROWS, ids=named)
def test_the_contract_on_masks_in_every_combination(row):
    check_contract(row)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_row_of_padding_changes_nothing(dtype):
    model = build(dtype=dtype)
    run = runner(model, parameters(model, T), dropout=False, weights=False)
    valid, cotangent = put(np.ones((B, T), bool), 1, False), put(normal(B, T, V), 1, 0)
    logits, _, gradients = run(TOKENS, valid, cotangent)
    assert_finite((logits, gradients))
    alone = run(TOKENS[:1], valid[:1], cotangent[:1])
    assert_near((logits[:1], gradients), (alone[0], alone[2]), 1e-6)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_packed_documents_are_strangers(positions):
    """Two documents in a row, positions restarted: each has the logits it has alone, and no bit of the other's."""
    model = build(positions=positions)
    params = parameters(model, T)
    apply = compiled(lambda params, tokens, **options: model.apply({"params": params}, tokens, **options))
    segments, restarted = np.array([[1, 1, 1, 1, 2, 2]]), np.array([[0, 1, 2, 3, 0, 1]])

    def packed(tokens):
        return apply(params, tokens, segments=segments, positions=restarted)

    first, second = TOKENS[:1, :4], TOKENS[:1, 4:]
    both = packed(np.concatenate([first, second], axis=1))
    assert_near(both, np.concatenate([apply(params, first), apply(params, second)], axis=1), 1e-5)
    other_first = packed(np.concatenate([(first + 1) % V, second], axis=1))
    other_second = packed(np.concatenate([first, (second + 1) % V], axis=1))
    assert_same_bits(other_first[:, 4:], both[:, 4:])
    assert_same_bits(other_second[:, :4], both[:, :4])
    assert (other_first[:, :4] != both[:, :4]).any() and (other_second[:, 4:] != both[:, 4:]).any()


def test_a_sequence_beyond_the_longest_is_refused_as_the_program_is_traced():
    model = build()
    jax.eval_shape(model.init, jax.random.key(0), jax.ShapeDtypeStruct((1, 8), jnp.int32))
    with pytest.raises(ValueError, match="9 tokens is longer than max_length=8"):
        jax.eval_shape(model.init, jax.random.key(0), jax.ShapeDtypeStruct((1, 9), jnp.int32))


@pytest.mark.parametrize("bad", [V, -1])
def test_an_id_that_does_not_exist_is_loud(bad):
    """NaN, and in no other row."""
    model = build()
    run = compiled(lambda params, tokens: model.apply({"params": params}, tokens))
    params = parameters(model, T)
    logits = run(params, put(TOKENS, (0, 3), bad))
    assert np.isnan(logits[0, 3:]).all()
    assert_same_bits(logits[1], run(params, TOKENS)[1])
