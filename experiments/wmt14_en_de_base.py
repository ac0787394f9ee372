"""WMT 2014 English to German, the base model of Attention Is All You Need (encoder–decoder, shared BPE).

Command:  python -m data.prepare tfds:wmt14_translate/de-en     once; takes TensorFlow and a network
          python train.py wmt14_en_de_base
Time:     not run: for a machine with 8 GPUs or TPU cores (the paper: 12 hours on 8 P100)
Measured: not run; shapes, parameters and one traced step are tested
Goal:     27.3 BLEU on newstest2014, beam 4, α 0.6, the mean of the last 5 checkpoints (the paper's table 2)
"""

from __future__ import annotations

from data.config import DataConfig
from experiments.experiment import Config, Experiment
from model.config import TransformerConfig
from training.config import OptimizerConfig, TrainConfig

VOCABULARY = 37_000
"""Ids for both languages together, special ones counted: 63.05 million parameters (the paper says 65)."""


def experiment() -> Experiment:
    """As published: post-norm, 6 + 6 layers, d 512, 8 heads, ff 2,048, one matrix for all three embeddings.

    Batches hold up to 25,000 source and 25,000 target tokens; Adam (0.9, 0.98, 1e-9) without clipping; the learning
    rate d^-½ · min(step^-½, step · 4,000^-1.5); dropout 0.1 on sublayers and embeddings; label smoothing 0.1; 100,000
    steps. A checkpoint each 1,500 steps, ten minutes at the paper's 0.4 s a step, and the last 5 are kept.

    Ours: matrix products in bfloat16, which accumulate in float32; pairs of more than 255 pieces are left out; BPE is
    byte-level; each of six shapes of batch is a multiple of 8 rows, for 8 devices.
    """
    d_model, warmup_steps = 512, 4000
    config = Config(
        data=DataConfig(
            source="tfds:wmt14_translate/de-en:en-de",
            tokens_per_batch=25_000,
            buckets=6,
            max_source_length=256,
            max_target_length=256,
            tokenizer="bpe",
            vocab_size=VOCABULARY,
            shared_vocabulary=True,
        ),
        model=TransformerConfig(
            d_model=d_model,
            num_heads=8,
            d_ff=2048,
            num_encoder_layers=6,
            num_decoder_layers=6,
            norm_position="post",
            embeddings="shared",
            max_length=1024,
            dropout=0.1,
            dtype="bfloat16",
        ),
        optimizer=OptimizerConfig(
            peak_lr=(d_model * warmup_steps) ** -0.5, schedule="noam", warmup_steps=warmup_steps, clip_norm=0.0
        ),
        train=TrainConfig(
            steps=100_000,
            label_smoothing=0.1,
            log_every=100,
            evaluate_every=1500,
            save_every=1500,
            max_to_keep=5,
        ),
    )
    return Experiment("wmt14_en_de_base", config)
