"""Hangul to the sounds of it: Korean grapheme to phoneme, SIGMORPHON 2021 (encoder–decoder, jamo to IPA).

Command:  python train.py g2p_korean --data.source tsv:DIRECTORY/kor
Time:     676 s of training on 2 cores with AMX, tests running beside it; 35 s of compilation
Measured: word error rate on test 18.60% (phonemes 3.02%), one model, greedy; on validation 21.5% (3.44%), 21.2% with
          beam 5 or the mean of the last five checkpoints. Published: one Transformer 19.26 ± 0.48 on test
"""

from __future__ import annotations

from data.config import DataConfig
from experiments.experiment import Config, Experiment, rotary_model
from model.config import TransformerConfig
from training.config import OptimizerConfig, TrainConfig


def experiment() -> Experiment:
    """Three layers each way over jamo (NFD), so that 67 symbols spell thousands of syllables; large batches."""
    config = Config(
        data=DataConfig(
            source="tsv:sigmorphon2021_korean/kor",
            batch_size=512,
            buckets=4,
            normalization="NFD",
            target_tokenizer="pretokenized",
        ),
        model=TransformerConfig(
            d_model=128,
            num_heads=4,
            d_ff=512,
            num_encoder_layers=3,
            num_decoder_layers=3,
            embeddings="separate",
            max_length=64,
            dropout=0.3,
            attention_dropout=0.1,
            dtype="bfloat16",
        ),
        optimizer=OptimizerConfig(peak_lr=2e-3, schedule="cosine", warmup_steps=200, weight_decay=0.1),
        train=TrainConfig(
            steps=1000,
            label_smoothing=0.1,
            evaluate_every=100,
            save_every=100,
            max_to_keep=5,
            best_metric="exact_match",
            log_every=50,
        ),
    )
    return Experiment("g2p_korean", config, model=rotary_model, task="pronunciation")
