"""Training options as frozen dataclasses. Imports nothing heavy, so that a command line answers quickly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args, get_type_hints

from model.float32 import complaint


@dataclass(frozen=True)
class OptimizerConfig:
    """Options of AdamW and of its learning-rate schedule.

    Raises:
      ValueError: a value out of range, in one line.
    """

    peak_lr: float = 1e-3
    """Highest learning rate, reached at the end of the warm-up."""
    schedule: Literal["noam", "cosine", "linear", "constant"] = "cosine"
    """What follows the linear warm-up: 1/√step (the paper), half a cosine, a line, or nothing."""
    warmup_steps: int = 400
    """Updates in which the learning rate rises from 0."""
    final_lr_fraction: float = 0.0
    """Learning rate at the last step as a fraction of the peak (cosine and linear)."""
    b1: float = 0.9
    """Adam's decay of the mean of gradients."""
    b2: float = 0.98
    """Adam's decay of the mean of squared gradients."""
    epsilon: float = 1e-9
    """Added to the root of the second moment."""
    weight_decay: float = 0.0
    """Decoupled decay (AdamW) of the parameters named "kernel": no biases, norms or embedding tables. 0: none."""
    clip_norm: float = 1.0
    """Largest global norm of the gradient; a longer one is scaled down to it. 0: no clipping."""

    def __post_init__(self):
        schedules = get_args(get_type_hints(OptimizerConfig)["schedule"])
        if self.schedule not in schedules:
            raise ValueError(f"schedule must be one of {', '.join(map(repr, schedules))}, got {self.schedule!r}")
        _check_numbers(self, ("peak_lr", "epsilon"), "a positive number", lambda x: x > 0)
        _check_integers(self, ("warmup_steps",), "a whole number from 0 to 2**31 - 1", lambda x: 0 <= x < 2**31)
        _check_numbers(self, ("weight_decay", "clip_norm"), "a number, 0 or more", lambda x: x >= 0)
        _check_numbers(self, ("b1", "b2"), "a number in [0, 1)", lambda x: 0 <= x < 1)
        _check_numbers(self, ("final_lr_fraction",), "a number in [0, 1]", lambda x: 0 <= x <= 1)


@dataclass(frozen=True)
class TrainConfig:
    """Options of the training loop: steps, batches, seed, and the intervals of logging, validation and saving.

    Raises:
      ValueError: a value out of range, in one line.
    """

    steps: int = 1000
    """Updates of the parameters in the whole run."""
    label_smoothing: float = 0.0
    """ε of the smoothed target (1 − ε)·one-hot + ε/V. 0: the plain cross-entropy."""
    grad_accumulation_steps: int = 1
    """Pieces in which a batch is taken, one after another, to save memory; the gradient is that of the whole batch."""
    logits_chunk: int = 0
    """Tokens whose logits are held at a time, for large vocabularies. 0: all of them."""
    seed: int = 0
    """Of everything random: initial parameters, data order, dropout."""
    init_from: str = ""
    """Directory of another run, from whose last parameters and with whose tokenizers this one starts. Empty: none."""
    log_every: int = 50
    """Steps between two rows of the training curve."""
    evaluate_every: int = 500
    """Steps between two evaluations on the validation split; one more follows the last step."""
    save_every: int = 500
    """Steps between two checkpoints; one more follows the last step."""
    max_to_keep: int = 3
    """Newest checkpoints that are kept."""
    keep_every: int = 0
    """Steps between checkpoints that are kept for good, a multiple of save_every. 0: none."""
    watchdog_minutes: float = 0.0
    """Time without the end of a step after which the process ends with exit code 75. 0: it waits for ever."""
    best_metric: str = "loss"
    """Validation metric by which the best checkpoint is kept besides, of those of steps that were evaluated; the
    experiment declares which way it is better."""
    ema: float = 0.0
    """Decay d of a moving average of the parameters, kept besides them: 1 − d of the newest each step. 0: none."""
    report: bool = True
    """Whether the end of the run measures the held-out splits, draws figures and trains the baselines. False, as for
    the trials of a sweep: its result is the last validation metrics."""
    track: Literal["none", "wandb"] = "none"
    """Where the curves go besides `metrics.jsonl` and TensorBoard. wandb: Weights & Biases, an extra to install."""

    def __post_init__(self):
        counts = ("grad_accumulation_steps", "log_every", "evaluate_every", "save_every", "max_to_keep")
        # The step is counted in 32 bits, and a JAX key keeps 32 bits of a seed.
        _check_integers(self, ("steps",), "a whole number from 1 to 2**31 - 1", lambda x: 1 <= x < 2**31)
        _check_integers(self, ("seed",), "a whole number from 0 to 2**32 - 1", lambda x: 0 <= x < 2**32)
        _check_integers(self, counts, "a positive whole number", lambda x: x >= 1)
        _check_integers(self, ("logits_chunk", "keep_every"), "a whole number, 0 or more", lambda x: x >= 0)
        if self.keep_every % self.save_every:
            raise ValueError(f"keep_every must be a multiple of save_every={self.save_every}, got {self.keep_every}")
        _check_numbers(self, ("watchdog_minutes",), "a number, 0 or more", lambda x: x >= 0)
        _check_numbers(self, ("label_smoothing", "ema"), "a number in [0, 1)", lambda x: 0 <= x < 1)
        if not isinstance(self.init_from, str):
            raise ValueError(f"init_from must be a path, got {self.init_from!r}")
        trackers = get_args(get_type_hints(TrainConfig)["track"])
        if self.track not in trackers:
            raise ValueError(f"track must be one of {', '.join(map(repr, trackers))}, got {self.track!r}")
        if not isinstance(self.best_metric, str) or not self.best_metric:
            raise ValueError(f"best_metric must name a validation metric, got {self.best_metric!r}")


def _check_integers(config: object, names: tuple[str, ...], wanted: str, holds: Callable[[int], bool]) -> None:
    for name in names:
        value = getattr(config, name)
        if isinstance(value, bool) or not isinstance(value, int) or not holds(value):
            raise ValueError(f"{name} must be {wanted}, got {value!r}")


def _check_numbers(config: object, names: tuple[str, ...], wanted: str, holds: Callable[[float], bool]) -> None:
    """Check that each named field is a finite number of which `holds` is true, in float32 too."""
    for name in names:
        if wrong := complaint(getattr(config, name), holds):
            raise ValueError(f"{name} must be {wanted}, {wrong}")
