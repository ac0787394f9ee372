"""Experiments for machines that we do not have: as published, traced at full size, run small on data of their form."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import pytest
import tensorflow_datasets as tfds

from data.buckets import rows_per_bucket
from experiments import lm1b, ted_pt_en, tiny_shakespeare, wmt14_en_de_base, wmt14_en_de_big
from model.config import TransformerConfig
from tests.data.in_memory import generate
from tests.model.parameter_count import count_parameters
from train import train
from training.schedules import SCHEDULES
from workdir.train_state import new_state

VOCABULARIES = {lm1b: 30_000, ted_pt_en: 8000, tiny_shakespeare: 69, wmt14_en_de_base: 37_000, wmt14_en_de_big: 37_000}


def full_size_batch(config):
    """The shapes of the largest batch that the experiment trains on."""
    data = config.data
    pairs = isinstance(config.model, TransformerConfig)
    widths = (data.max_source_length, data.max_target_length) if pairs else (data.max_target_length,)
    (rows,) = rows_per_bucket((widths,), data.batch_size, data.tokens_per_batch, data.row_multiple)
    names = ("source", "target") if pairs else ("tokens",)
    if data.packing == "documents":
        names += ("segments", "positions")
    inputs = {name: jax.ShapeDtypeStruct((rows, widths[-1]), jnp.int32) for name in names}
    return {
        "inputs": inputs,
        "labels": jax.ShapeDtypeStruct((rows, widths[-1]), jnp.int32),
        "loss_mask": jax.ShapeDtypeStruct((rows, widths[-1]), jnp.bool),
    }


@pytest.mark.parametrize("module", VOCABULARIES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_a_full_size_step_fits_together(module):
    """Nothing is allocated: shapes only, of the state and of a step with loss, gradient and update."""
    experiment = module.experiment()
    config, vocab_size = experiment.config, VOCABULARIES[module]
    sides = ("source", "target") if isinstance(config.model, TransformerConfig) else ("text",)
    model = experiment.model(config, dict.fromkeys(sides, vocab_size))
    batch = full_size_batch(config)
    state = jax.eval_shape(lambda: new_state(experiment, model, {name: x.shape for name, x in batch["inputs"].items()}))
    count = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(state.params))
    assert count == count_parameters(config.model, *[vocab_size] * len(sides))
    assert {leaf.dtype for leaf in jax.tree.leaves(state.params)} == {jnp.dtype("float32")}

    loss, optimizer = experiment.loss(config, model), experiment.optimizer(config)
    step = experiment.step(config, loss, optimizer, experiment.schedule(config))
    new, metrics = jax.eval_shape(step, state, batch)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), new) == jax.tree.map(lambda x: (x.shape, x.dtype), state)
    assert metrics["loss"][0].shape == () and metrics["loss"][0].dtype == jnp.float32


@pytest.mark.parametrize(("module", "millions"), [(wmt14_en_de_base, 63.05), (wmt14_en_de_big, 214.17)])
def test_parameters_of_the_paper(module, millions):
    config = module.experiment().config
    assert round(count_parameters(config.model, *[config.data.vocab_size] * 2) / 1e6, 2) == millions


@pytest.mark.parametrize(("module", "d_model"), [(wmt14_en_de_base, 512), (wmt14_en_de_big, 1024)])
def test_the_learning_rate_of_the_paper(module, d_model):
    """d^-½ · min(step^-½, step · warmup^-1.5), section 5.3."""
    optimizer = module.experiment().config.optimizer
    hyper = {"peak_lr": optimizer.peak_lr, "warmup_steps": float(optimizer.warmup_steps)}
    for step in (1, 400, 4000, 100_000):
        expected = d_model**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert float(SCHEDULES[optimizer.schedule](jnp.float32(step), hyper)) == pytest.approx(expected, rel=1e-5)
    assert (optimizer.b1, optimizer.b2, optimizer.epsilon, optimizer.clip_norm) == (0.9, 0.98, 1e-9, 0)


def test_a_batch_holds_at_most_25_000_tokens_of_each_side():
    data = wmt14_en_de_base.experiment().config.data
    for width in range(8, 257):
        (rows,) = rows_per_bucket(((width, width),), 0, data.tokens_per_batch, data.row_multiple)
        assert 0.75 * 25_000 < rows * width <= 25_000 and rows % 8 == 0


def shrunk(module, directory, **data):
    """The experiment with a tiny model in float32, two steps, its data in `directory`."""
    experiment = module.experiment()
    config = experiment.config
    layers = {
        name: 1 for name in ("num_layers", "num_encoder_layers", "num_decoder_layers") if hasattr(config.model, name)
    }
    sizes = {"d_model": 16, "num_heads": 2, "d_k": 8, "d_ff": 16, "max_length": 64, "dtype": "float32"}
    model = dataclasses.replace(config.model, **sizes, **layers)
    small = {"directory": str(directory), "buckets": 1, **data}
    settings = dataclasses.replace(config.train, steps=2, evaluate_every=2, save_every=2, log_every=1)
    return dataclasses.replace(
        experiment,
        config=dataclasses.replace(
            config,
            data=dataclasses.replace(config.data, **small),
            model=model,
            train=settings,
            workdir=str(directory / "run"),
        ),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "config", "languages"),
    [
        (wmt14_en_de_base, "wmt14_translate", "de-en", ("de", "en")),
        (ted_pt_en, "ted_hrlr_translate", "pt_to_en", ("pt", "en")),
    ],
)
def test_translation_experiments_read_the_features_of_their_dataset(module, name, config, languages, tmp_path, capsys):
    rows = [dict(zip(languages, (f"{languages[0]} {number} eins", f"{number} one"))) for number in range(16)]
    features = tfds.features.Translation(languages=languages)
    generate(tmp_path, name, features, rows, languages, config, splits=("train", "validation", "test"))
    small = {
        "batch_size": 8,
        "tokens_per_batch": 0,
        "max_source_length": 32,
        "max_target_length": 32,
        "vocab_size": 270,
    }
    result = train(shrunk(module, tmp_path, **small))
    assert result.metrics["test_sentences"] == 16 and 0 <= result.metrics["test_exact_match"] <= 1
    source, target = module.experiment().config.data.source.rpartition(":")[2].split("-")
    out = capsys.readouterr().out
    assert f"  {rows[0][source]}  ->  " in out and f"not {rows[0][target]})" in out


@pytest.mark.slow
def test_lm1b_reads_its_text_packs_it_and_validates_on_a_part_of_training(tmp_path, capsys):
    rows = [{"text": f"The dog number {number} barks ."} for number in range(32)]
    generate(tmp_path, "lm1b", {"text": tfds.features.Text()}, rows, ("text", "text"), splits=("train", "test"))
    result = train(shrunk(lm1b, tmp_path, batch_size=2, max_target_length=64, vocab_size=270))
    assert "the last 1 of 32 training examples are taken for it" in capsys.readouterr().out
    # 32 sentences of 6 words and an end each.
    nats = math.log(result.metrics["test_perplexity_per_word"]) * 32 * 7
    size = sum(len(row["text"]) for row in rows)
    assert result.metrics["test_bits_per_byte"] == pytest.approx(nats / math.log(2) / size, rel=1e-6)
    assert set(result.metrics) >= {"validation_nats", "test_nats"}


@pytest.mark.slow
def test_tiny_shakespeare_reads_one_document_a_split(tmp_path):
    text = "First Citizen:\nBefore we proceed any further, hear me speak.\n\n" * 8
    splits = ("train", "validation", "test")
    generate(tmp_path, "tiny_shakespeare", {"text": tfds.features.Text()}, [{"text": text}], splits=splits)
    result = train(shrunk(tiny_shakespeare, tmp_path, batch_size=2, max_target_length=64))
    assert 0 < result.metrics["validation_nats"] == pytest.approx(result.metrics["validation_loss"], rel=1e-5)
    assert result.metrics["test_bits_per_byte"] > 0
