"""Two runs of a minute's work at most, trained once for all tests of the scripts that use runs."""

import dataclasses
import itertools
from pathlib import Path

from experiments import reverse
from experiments.experiment import Config, Experiment
from model.config import LanguageModelConfig
from train import train
from training.config import OptimizerConfig

LETTERS = "abc"


def spelling_corpus(folder: Path) -> str:
    """Words and their letters, `abc` to `A B C`; in the test split `aa` and `bb` have two right answers."""
    words = ["".join(word) for length in (2, 3) for word in itertools.product(LETTERS, repeat=length)]
    rows = [f"{word}\t{' '.join(word.upper())}\n" for word in words]
    second = ["aa\tA B\n", "bb\tB C\n"]
    for split, part in (("train", rows), ("dev", rows[::3]), ("test", rows[::2] + second)):
        (folder / f"spelling_{split}.tsv").write_text("".join(part))
    return f"tsv:{folder}/spelling"


def spelling(workdir: Path, source: str, **train_options) -> Experiment:
    """Learned in 150 steps, nearly."""
    base = reverse.experiment()
    settings = {"steps": 150, "log_every": 50, "evaluate_every": 30, "save_every": 30} | train_options
    config = dataclasses.replace(
        base.config,
        data=dataclasses.replace(base.config.data, source=source, batch_size=12),
        model=dataclasses.replace(base.config.model, d_model=32, num_heads=2, d_ff=32, embeddings="separate"),
        optimizer=OptimizerConfig(peak_lr=1e-2, schedule="constant", warmup_steps=10),
        train=dataclasses.replace(base.config.train, **settings),
        workdir=str(workdir),
    )
    return dataclasses.replace(base, config=config)


def train_spelling(folder: Path) -> Path:
    """A run that has kept its best checkpoint and a moving average."""
    run = folder / "run"
    train(spelling(run, spelling_corpus(folder), ema=0.9, best_metric="exact_match", max_to_keep=2))
    return run


def train_text(folder: Path) -> Path:
    """A language model of a text that repeats itself, rows of 16 characters."""
    (folder / "text.txt").write_text("the cat sat. the dog ran. " * 40 + "été", encoding="utf-8")
    base = reverse.experiment()
    config = Config(
        data=dataclasses.replace(
            base.config.data, source=f"text:{folder}/text.txt", batch_size=8, max_target_length=16
        ),
        model=LanguageModelConfig(d_model=32, num_heads=2, d_ff=32, num_layers=1, max_length=16, dropout=0.0),
        optimizer=OptimizerConfig(peak_lr=1e-2, schedule="constant", warmup_steps=10),
        train=dataclasses.replace(base.config.train, steps=60, log_every=60, evaluate_every=60, save_every=60),
        workdir=str(folder / "run"),
    )
    # The name of an encoder–decoder experiment would do, but could not be read back: a language model's is wanted.
    train(Experiment("stdlib_char", config))
    return folder / "run"
