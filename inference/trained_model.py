"""A trained model with its parameters, tokenizers and sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import flax.linen as nn

    from data.spec import DataSpec
    from data.tokenizers.base import Tokenizer


@dataclass(frozen=True)
class TrainedModel:
    """A model, its parameters, and the tokenizers of its inputs and outputs."""

    model: nn.Module
    """`model.apply({"params": params}, ...)` runs it."""
    params: Any
    """Nested dict of arrays."""
    tokenizers: Mapping[str, Tokenizer]
    """Of each side: source and target, or text."""
    spec: DataSpec
    """The sizes that it was trained with."""

    @property
    def is_language_model(self) -> bool:
        """Whether the model is a language model; otherwise it is an encoder–decoder."""
        return "text" in self.tokenizers
