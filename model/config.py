"""Model options as frozen dataclasses. Imports nothing heavy, so that a command line answers quickly."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args, get_origin, get_type_hints

from model.float32 import complaint


@dataclass(frozen=True)
class BlockConfig:
    """Options of the blocks of both models.

    Raises:
      ValueError: a value that no model can have, in one line that names the field, the value, and what is wanted.
    """

    d_model: int = 512
    """Width of the residual stream."""
    num_heads: int = 8
    """Attention heads H."""
    num_kv_heads: int | None = None
    """Key/value heads G, a divisor of num_heads: queries share them in groups. None: as many as num_heads."""
    d_k: int | None = None
    """Width of a query or key head. None: d_model / num_heads."""
    d_v: int | None = None
    """Width of a value head. None: d_k."""
    d_ff: int = 2048
    """Width inside the feed-forward network."""
    activation: Literal["relu", "gelu"] = "relu"
    """Between the two layers of the feed-forward network."""
    norm_position: Literal["pre", "post"] = "pre"
    """Norm before each sublayer, with a final one on each stack; or after the residual sum (Vaswani et al. 2017)."""
    positions: Literal["sinusoidal", "learned", "none"] = "sinusoidal"
    """What is added to the embeddings to tell positions apart."""
    max_length: int = 1024
    """Longest sequence, in tokens. A longer one is refused when the program is traced."""
    biases: Literal["all", "feed_forward", "none"] = "feed_forward"
    """Which maps have a bias: all; the feed-forward network and the norms (Vaswani et al. 2017); none at all."""
    dropout: float = 0.1
    """Rate for sublayer outputs and embedding sums. 0 makes no random bits."""
    attention_dropout: float = 0.0
    """Rate for attention weights."""
    dtype: Literal["float32", "bfloat16", "float16", "float64"] = "float32"
    """Compute type of the matrix products. They accumulate in float32; all the rest is float32 anyway."""
    scan_layers: bool = False
    """Compile one layer and loop over it: faster compilation of deep models; on a CPU slower steps."""
    remat: bool = False
    """Recompute each layer in the backward pass: memory of one layer instead of all, for a third more time."""

    def __post_init__(self):
        hints = get_type_hints(type(self))
        for field in fields(self):
            _check_choice(field.name, getattr(self, field.name), hints[field.name])
        for name in ("d_model", "num_heads", "num_kv_heads", "d_k", "d_v", "d_ff", "max_length"):
            _check_positive(name, getattr(self, name))
        for name in ("dropout", "attention_dropout"):
            _check_rate(name, getattr(self, name))
        if self.d_k is None and self.d_model % self.num_heads:
            raise ValueError(
                f"d_model must be divisible by num_heads unless d_k is given, got d_model={self.d_model} and "
                f"num_heads={self.num_heads}"
            )
        if self.num_heads % self.kv_heads:
            raise ValueError(
                f"num_kv_heads must divide num_heads, got num_kv_heads={self.kv_heads} and num_heads={self.num_heads}"
            )

    @property
    def kv_heads(self) -> int:
        """Return the number of key/value heads, the default filled in."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def key_width(self) -> int:
        """Return d_k, the default filled in."""
        return self.d_model // self.num_heads if self.d_k is None else self.d_k

    @property
    def value_width(self) -> int:
        """Return d_v, the default filled in."""
        return self.key_width if self.d_v is None else self.d_v

    @property
    def attention_bias(self) -> bool:
        return self.biases == "all"

    @property
    def feed_forward_bias(self) -> bool:
        return self.biases != "none"


@dataclass(frozen=True)
class TransformerConfig(BlockConfig):
    """The encoder–decoder Transformer."""

    num_encoder_layers: int = 6
    """Blocks that read the source."""
    num_decoder_layers: int = 6
    """Blocks that write the target."""
    embeddings: Literal["shared", "tied", "separate"] = "tied"
    """One matrix for source, target and output (a shared vocabulary); one for target and output; or three."""

    def __post_init__(self):
        super().__post_init__()
        _check_positive("num_encoder_layers", self.num_encoder_layers)
        _check_positive("num_decoder_layers", self.num_decoder_layers)


@dataclass(frozen=True)
class LanguageModelConfig(BlockConfig):
    """The decoder-only language model."""

    num_layers: int = 6
    """Blocks."""
    embeddings: Literal["tied", "separate"] = "tied"
    """One matrix for input and output, or two."""

    def __post_init__(self):
        super().__post_init__()
        _check_positive("num_layers", self.num_layers)


def _check_positive(name: str, value: int | None) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError(f"{name} must be a positive whole number, got {value!r}")


def _check_rate(name: str, value: float) -> None:
    if wrong := complaint(value, lambda rate: 0.0 <= rate < 1.0):
        raise ValueError(f"{name} must be a number in [0, 1), {wrong}")


def _check_choice(name: str, value: object, hint: object) -> None:
    if get_origin(hint) is Literal and value not in get_args(hint):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, get_args(hint)))}, got {value!r}")
