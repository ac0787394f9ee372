"""WMT 2014 English to German, the big model of Attention Is All You Need (encoder–decoder, shared BPE).

Command:  python -m data.prepare tfds:wmt14_translate/de-en     once; takes TensorFlow and a network
          python train.py wmt14_en_de_big
Time:     not run: for a machine with 8 GPUs or TPU cores (the paper: 3.5 days on 8 P100)
Measured: not run; shapes, parameters and one traced step are tested
Goal:     28.4 BLEU on newstest2014, beam 4, α 0.6, the mean of the last 20 checkpoints (the paper's table 2)
"""

from __future__ import annotations

import dataclasses

from experiments import wmt14_en_de_base
from experiments.experiment import Experiment


def experiment() -> Experiment:
    """The base model's experiment with the paper's changes: d 1,024, 16 heads, ff 4,096, dropout 0.3, 300,000 steps.

    214.17 million parameters (the paper says 213). The schedule's peak follows from d. A checkpoint each 600 steps, ten
    minutes at the paper's second a step, and the last 20 are kept.
    """
    base = wmt14_en_de_base.experiment()
    config = base.config
    config = dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, d_model=1024, num_heads=16, d_ff=4096, dropout=0.3),
        optimizer=dataclasses.replace(config.optimizer, peak_lr=(1024 * config.optimizer.warmup_steps) ** -0.5),
        train=dataclasses.replace(config.train, steps=300_000, evaluate_every=600, save_every=600, max_to_keep=20),
    )
    return dataclasses.replace(base, name="wmt14_en_de_big", config=config)
