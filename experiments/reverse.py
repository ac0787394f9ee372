"""Digits, reversed: the smallest smoke test of everything (encoder–decoder, characters).

Command:  python train.py reverse
Time:     11 s of training on 2 cores with AMX
Measured: 100% exact match on 500 held-out strings
"""

from __future__ import annotations

from data.config import DataConfig
from experiments.experiment import Config, Experiment
from experiments.search_space import LogUniform
from model.config import TransformerConfig
from training.config import OptimizerConfig, TrainConfig


def experiment() -> Experiment:
    """One layer each way reads up to 12 digits and writes them backwards."""
    config = Config(
        data=DataConfig(source="reverse", batch_size=64),
        model=TransformerConfig(
            d_model=64,
            num_heads=4,
            d_ff=128,
            num_encoder_layers=1,
            num_decoder_layers=1,
            embeddings="shared",
            max_length=16,
            dropout=0.0,
        ),
        optimizer=OptimizerConfig(peak_lr=3e-3, schedule="cosine", warmup_steps=50),
        train=TrainConfig(steps=1000, evaluate_every=500, save_every=500, log_every=25),
    )
    return Experiment("reverse", config, space={"optimizer.peak_lr": LogUniform(5e-4, 2e-2)}, task="exact_match")
