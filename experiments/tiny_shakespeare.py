"""Tiny Shakespeare from TFDS, one character after another, in nanoGPT's setting for a GPU (decoder-only).

Command:  python -m data.prepare tfds:tiny_shakespeare     once; takes TensorFlow and a network
          python train.py tiny_shakespeare
Time:     not run (nanoGPT: 3 minutes on an A100)
Measured: not run; shapes, parameters and one traced step are tested
Goal:     1.4697 nats a character on validation, nanoGPT's best evaluation
"""

from __future__ import annotations

from data.config import DataConfig
from experiments.experiment import Config, Experiment
from model.config import LanguageModelConfig
from training.config import OptimizerConfig, TrainConfig


def experiment() -> Experiment:
    """6 layers, d 384, 6 heads, context 256, 64 rows, dropout 0.2 everywhere, no biases, GELU, learned positions.

    nanoGPT's config/train_shakespeare_char.py: AdamW (0.9, 0.99) with decay 0.1, clipping at 1, 1e-3 after 100 steps,
    down a cosine to a tenth of it in 5,000. TFDS splits 90 : 5 : 5 where nanoGPT has 90 : 10, and of ours an embedding
    does not decay. `shakespeare_char` is nanoGPT's setting for a CPU, on the file itself.
    """
    config = Config(
        data=DataConfig(source="tfds:tiny_shakespeare", batch_size=64, max_target_length=256),
        model=LanguageModelConfig(
            d_model=384,
            num_heads=6,
            d_ff=1536,
            num_layers=6,
            activation="gelu",
            positions="learned",
            max_length=256,
            biases="none",
            dropout=0.2,
            attention_dropout=0.2,
            dtype="bfloat16",
        ),
        optimizer=OptimizerConfig(
            peak_lr=1e-3,
            schedule="cosine",
            warmup_steps=100,
            final_lr_fraction=0.1,
            b2=0.99,
            epsilon=1e-8,
            weight_decay=0.1,
        ),
        train=TrainConfig(steps=5000, evaluate_every=250, save_every=1000, log_every=50),
    )
    return Experiment("tiny_shakespeare", config)
