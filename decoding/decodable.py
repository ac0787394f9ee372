"""Protocol of models that can be decoded."""

from __future__ import annotations

from typing import Any, Protocol

from jaxtyping import Array, Int

from decoding.step import DecodeInputs
from model.language_model import LanguageModel
from model.transformer import Transformer


class DecodableModel(Protocol):
    """A model that text is generated with: by `generate.py`, `evaluate.py` and the reports.

    `Transformer` and `LanguageModel` are decoded by `decoding.start`. Another model needs these two attributes, and for
    scores those of `training.trainable.TrainableModel`; for pictures of attention it sows "decoder_cross_attention"
    [L, B, H, T, S] into "intermediates".
    """

    max_length: int
    """Tokens of the longest sequence, prompt and continuation together."""

    def prefill(
        self, params: Any, *inputs: Int[Array, "B T"], lengths: Int[Array, " B"] | None = None, max_tokens: int
    ) -> DecodeInputs:
        """Read the prompt but for its last token into a cache.

        A plain method: it is not called through Flax's `apply`.

        Args:
          inputs: the prompt [B, T]; of an encoder-decoder the source [B, S], padded with 0, and the target's prompt.
          lengths: tokens in each row of the prompt, at least 1, on the left. None: all T.
          max_tokens: how many tokens may follow. The sizes of the cache may depend on T - 1 + max_tokens only.

        Returns:
          The step function, a cache whose arrays have the batch axis first, and each row's last token.
        """


def check_decodable(model: Any) -> None:
    """Check that `model` is a `Transformer`, a `LanguageModel` or a `DecodableModel`.

    Raises:
      ValueError: an attribute is missing; names it.
    """
    for name in ("max_length", "prefill"):
        if not hasattr(model, name) and not isinstance(model, LanguageModel | Transformer):
            raise ValueError(
                f"{type(model).__name__} cannot be decoded (see decoding.decodable.DecodableModel): it has no {name}"
            )
