"""Protocol of models that can be trained."""

from __future__ import annotations

import inspect
from typing import Any, Protocol

from jaxtyping import Array, Float


class TrainableModel(Protocol):
    """A model that `token_loss` can train: any Flax module with the two methods below.

    They are called through Flax, `model.apply({"params": params}, ..., method="features")`, and parameters are made by
    `model.init(key, **inputs)["params"]`. `Transformer` and `LanguageModel` are such models.
    """

    def features(self, *, dropout_rate: Any = None, attention_dropout_rate: Any = None, **inputs: Array) -> Array:
        """Return the features of each position, [B, T, D], from which `logits` predicts the next token.

        Args:
          inputs: `batch["inputs"]`, int32 and padded with 0: `source` [B, S] and `target` [B, T] of pairs; `tokens`
            [B, T] of text, where documents are packed with `segments` and `positions` [B, T] of each token.
          dropout_rate, attention_dropout_rate: float32 scalars that may be traced, or None for no dropout. With dropout
            there is a key, `self.make_rng("dropout")`.
        """

    def logits(self, features: Float[Array, "B T D"]) -> Float[Array, "B T V"]:
        """Return the logits of the token after each position. Apart from `features`, since a loss may compute them for
        some positions at a time."""


def check_trainable(model: Any) -> None:
    """Check that `model` is a `TrainableModel`.

    Raises:
      ValueError: a method or a keyword argument is missing; names it.
    """
    what = f"{type(model).__name__} cannot be trained by token_loss (see training.trainable.TrainableModel)"
    for name in ("apply", "features", "logits"):
        if not callable(getattr(model, name, None)):
            raise ValueError(f"{what}: it has no method {name}")
    parameters = inspect.signature(model.features).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return
    for name in ("dropout_rate", "attention_dropout_rate"):
        if name not in parameters:
            raise ValueError(f"{what}: its features take no {name}")
