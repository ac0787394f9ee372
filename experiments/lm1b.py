"""One Billion Word benchmark, the language model of Flax's example (decoder-only, BPE, packed sentences).

Command:  python -m data.prepare tfds:lm1b     once; takes TensorFlow and a network
          python train.py lm1b
Time:     not run: for a machine with 8 GPUs or TPU cores
Measured: not run; shapes, parameters and one traced step are tested
"""

from __future__ import annotations

from data.config import DataConfig
from experiments.experiment import Config, Experiment
from model.config import LanguageModelConfig
from training.config import OptimizerConfig, TrainConfig


def experiment() -> Experiment:
    """6 layers, d 512, 8 heads, ff 2,048, pre-norm, dropout 0.1 also on attention weights, 30,000 ids, two embeddings.

    Flax's examples/lm1b: rows of 128 tokens that hold whole sentences, 32 on each of 8 devices; AdamW (0.9, 0.98, 1e-9)
    with decay 0.1; 1/√step from 0.0016 after 1,000 steps; 500,000 steps; bfloat16. Ours: BPE is byte-level, decay
    leaves out embeddings and norms, and validation is the last hundredth of the training split, which has no other; the
    test split is for the report.
    """
    config = Config(
        data=DataConfig(
            source="tfds:lm1b",
            batch_size=256,
            max_target_length=128,
            packing="documents",
            tokenizer="bpe",
            vocab_size=30_000,
        ),
        model=LanguageModelConfig(
            d_model=512,
            num_heads=8,
            d_ff=2048,
            num_layers=6,
            embeddings="separate",
            max_length=128,
            dropout=0.1,
            attention_dropout=0.1,
            dtype="bfloat16",
        ),
        optimizer=OptimizerConfig(peak_lr=1.6e-3, schedule="noam", warmup_steps=1000, weight_decay=0.1, clip_norm=0.0),
        train=TrainConfig(steps=500_000, evaluate_every=10_000, save_every=10_000, log_every=500),
    )
    return Experiment("lm1b", config)
