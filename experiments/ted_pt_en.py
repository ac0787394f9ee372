"""TED talks, Portuguese to English: the small Transformer of TensorFlow's tutorial (encoder–decoder, BPE).

Command:  python -m data.prepare tfds:ted_hrlr_translate/pt_to_en     once; takes TensorFlow and a network
          python train.py ted_pt_en
Time:     not run
Measured: not run; shapes, parameters and one traced step are tested
"""

from __future__ import annotations

from data.config import DataConfig
from experiments.experiment import Config, Experiment
from model.config import TransformerConfig
from training.config import OptimizerConfig, TrainConfig


def experiment() -> Experiment:
    """4 + 4 layers, d 128, ff 512, 8 heads of width 128, post-norm, three embeddings, biases everywhere, dropout 0.1.

    The tutorial's 64 sentences a batch, at most 128 tokens each, Adam (0.9, 0.98, 1e-9) with the paper's schedule and
    4,000 steps of warm-up, 20 epochs of 51,785 pairs: 810 steps each. It drops attention weights where the paper drops
    the attention's output; here both are. Vocabularies are byte-level BPE of 8,000 ids each, its are WordPiece of about
    that size; longer pairs are left out, where it cuts them.
    """
    d_model, warmup_steps = 128, 4000
    config = Config(
        data=DataConfig(
            source="tfds:ted_hrlr_translate/pt_to_en:pt-en",
            batch_size=64,
            buckets=6,
            max_source_length=128,
            max_target_length=128,
            tokenizer="bpe",
            vocab_size=8000,
        ),
        model=TransformerConfig(
            d_model=d_model,
            num_heads=8,
            d_k=128,
            d_ff=512,
            num_encoder_layers=4,
            num_decoder_layers=4,
            norm_position="post",
            biases="all",
            embeddings="separate",
            max_length=128,
            dropout=0.1,
            attention_dropout=0.1,
        ),
        optimizer=OptimizerConfig(
            peak_lr=(d_model * warmup_steps) ** -0.5, schedule="noam", warmup_steps=warmup_steps, clip_norm=0.0
        ),
        train=TrainConfig(steps=16_200, evaluate_every=810, save_every=810, log_every=50),
    )
    return Experiment("ted_pt_en", config)
