"""How text comes out of a model: pure functions over a step function (cache, token) -> (cache, logits)."""

from decoding.greedy import greedy
from decoding.start import start_language_model, start_transformer
from decoding.step import Decoded

__all__ = ["Decoded", "greedy", "start_language_model", "start_transformer"]
